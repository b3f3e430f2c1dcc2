"""The models that lie in a folder: which file has which name and version.

FOLDER/birds/1/model.onnx    Triton's layout: numbered versions, each with one .onnx file
FOLDER/birds@2.onnx          a version behind the name
FOLDER/birds.onnx            version 1
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from calibrant.errors import DataError

Key = tuple[str, str]  # name, version
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FILE = re.compile(rf"(?P<name>{NAME.pattern})(@(?P<version>[A-Za-z0-9._-]+))?\.onnx")


def version_key(version: str) -> tuple[int, str]:
    return (int(version), "") if version.isdigit() else (-1, version)


def is_model_path(name: str) -> bool:
    """Whether a path below a folder may be a model's: of a bucket nothing else is copied."""
    parts = name.split("/")
    if len(parts) == 1:
        return _FILE.fullmatch(name) is not None
    return (
        len(parts) == 3
        and NAME.fullmatch(parts[0]) is not None
        and parts[1].isdigit()
        and parts[2].endswith(".onnx")
        and not parts[2].startswith(".")
    )


def models_in(folder: Path) -> dict[Key, Path]:
    """By name and version. What is hidden, or named otherwise, is no model."""
    found: dict[Key, Path] = {}
    for key, path in _listed(folder):
        if key in found:
            raise DataError(
                f"{path} and {found[key]} are both version {key[1]} of {key[0]}", where=folder, fix="move one away"
            )
        found[key] = path
    return found


def _listed(folder: Path) -> Iterator[tuple[Key, Path]]:
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"cannot be listed ({error.strerror})", where=folder) from None
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if NAME.fullmatch(entry.name):
                yield from _versions(entry)
        elif (match := _FILE.fullmatch(entry.name)) is not None:
            yield (match["name"], match["version"] or "1"), entry


def _versions(folder: Path) -> Iterator[tuple[Key, Path]]:
    """Numbered folders with a model.onnx, or with one .onnx file of another name."""
    for entry in sorted(folder.iterdir()):
        if not entry.name.isdigit() or not entry.is_dir():
            continue
        files = sorted(p for p in entry.glob("*.onnx") if not p.name.startswith("."))
        usual = entry / "model.onnx"
        if usual in files or len(files) == 1:
            yield (folder.name, entry.name), usual if usual in files else files[0]
