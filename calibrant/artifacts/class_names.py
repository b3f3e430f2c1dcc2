"""Class names that a user gives in a file: one a line, or JSON."""

from __future__ import annotations

import json
from pathlib import Path

from calibrant.errors import DataError


def read_class_names(path: Path) -> tuple[str, ...]:
    """In order: a text file with one name a line, or a JSON list."""
    found = read_names_or_table(path)
    if isinstance(found, dict):
        raise DataError("holds a table, expected a list of class names", where=path)
    names = tuple(name.strip() for name in found if name.strip())
    twice = next((n for n in names if names.count(n) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise DataError(f'class "{twice}" stands there twice', where=path)
    return names


def read_names_or_table(path: Path) -> list[str] | dict[str, str]:
    """The same, or a JSON table from old names to new."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # as Windows editors write it
        if path.suffix != ".json":
            return text.splitlines()
        found = json.loads(text)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read as class names ({error})", where=path) from None
    if isinstance(found, dict):
        return {str(k): str(v) for k, v in found.items()}
    if isinstance(found, list):
        return [str(v) for v in found]
    raise DataError("holds neither a list nor a table of class names", where=path)
