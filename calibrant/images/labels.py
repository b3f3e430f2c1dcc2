"""Words in data files: labels in order, and names of splits."""

from __future__ import annotations

from collections.abc import Iterable

SPLIT_WORDS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
_KNOWN = {word: split for split, words in SPLIT_WORDS.items() for word in words}
ALL = "all"  # the name of what has not been divided


def class_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Distinct labels: as numbers in order where all are, else sorted as text."""
    values = set(labels)
    if all(v.isdigit() for v in values):
        return tuple(sorted(values, key=int))
    return tuple(sorted(values))


def split_name(word: str) -> str:
    """train, val or test under their usual names; another word is a split of its own."""
    word = word.strip().lower()
    return _KNOWN.get(word, word)


def split_of_file(name: str, also: str | None = None) -> str:
    """The split that the name of a shard begins with: train, val or test, or `also`; else "all"."""
    words = [*SPLIT_WORDS, *([] if also is None else [also])]
    found = max((w for w in words if name.startswith(w)), key=len, default=ALL)
    return split_name(found)
