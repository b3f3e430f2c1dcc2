"""Which models to put away, so that those in memory stay within a budget: the ones that were asked longest ago."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.errors import CalibrantError
from calibrant.serve.models.model import Model


def file_bytes(path: Path) -> int:
    """Of the file and of its weights beside it: what its session takes of memory, but for what runs add."""
    size = 0
    with contextlib.suppress(OSError, CalibrantError):  # which loading will tell
        size = path.stat().st_size
        size += sum(data.stat().st_size for data in OnnxFile.open(path).external_files())
    return size


def to_put_away(loaded: Iterable[Model], coming: int, budget: int) -> list[Model]:
    """Of the loaded ones that may go, those that must, for `coming` bytes to fit."""
    waiting = sorted(loaded, key=lambda model: (model.active > 0, model.used))
    taken, gone = sum(model.size for model in waiting), []
    for model in waiting:
        if taken + coming <= budget:
            break
        gone.append(model)
        taken -= model.size
    return gone
