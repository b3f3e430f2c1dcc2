"""Words in data files: labels in order, and names of splits."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from calibrant.errors import DataError

_SPLITS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def class_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Distinct labels: as numbers in order where all are, else sorted as text."""
    values = set(labels)
    if all(v.isdigit() for v in values):
        return tuple(sorted(values, key=int))
    return tuple(sorted(values))


def split_name(word: str, *, where: Path) -> str:
    """train, val or test."""
    kind = _SPLITS.get(word.strip().lower())
    if kind is None:
        raise DataError(f'split "{word}" is not train, val or test', where=where)
    return kind
