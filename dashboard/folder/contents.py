"""What the files hold, read once for each state of a file and kept by (path, size, time of change)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.artifacts.predictions import PredictionsFile, Source
from calibrant.calibration.calibrators import Calibrator
from calibrant.dashboard.folder.artifacts import TokenGallery, TokenPicture
from calibrant.dashboard.folder.files import Stamp, stamp
from calibrant.errors import DataError, FormatError

MAX_JSON_BYTES = 32 << 20
TOKENS_VERSION = 1
_KEPT = 512


@lru_cache(_KEPT)
def header_of(files: tuple[Stamp, ...]) -> tuple[int, Source]:
    if not files:
        raise DataError("the folder holds no .parquet file")
    found = opened(files)
    return found.rows, found.source


@lru_cache(4)
def opened(files: tuple[Stamp, ...]) -> PredictionsFile:
    """A file ready to be read; one of another tool, which is read whole, is kept."""
    return PredictionsFile.open(files[0].path if len(files) == 1 else files[0].path.parent, independent=True)


@lru_cache(_KEPT)
def card_of(file: Stamp) -> ModelCard:
    return OnnxFile.open(file.path).card()


@lru_cache(_KEPT)
def object_of(file: Stamp) -> Mapping[str, Any]:
    block = _json(file)
    if not isinstance(block, dict):
        raise FormatError("is not a JSON object", where=file.path)
    return block


@lru_cache(_KEPT)
def calibrator_of(file: Stamp) -> Calibrator | None:
    """The calibrator in a JSON file; None where the file is about something else."""
    try:
        block = _json(file)
    except FormatError:
        if "calibrator" in file.path.name:
            raise
        return None
    if not isinstance(block, dict) or block.get("kind") != "calibrator":
        return None
    return Calibrator.from_dict(block, where=file.path)


def _json(file: Stamp) -> Any:
    if file.size > MAX_JSON_BYTES:
        raise FormatError(f"is {file.size / 1e6:.0f} MB, too large for this kind of file", where=file.path)
    try:
        return json.loads(file.path.read_bytes())
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise FormatError("is not complete JSON", where=file.path, fix="write it again, or delete it") from None


def read_log(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl. A line that is still being written is left out, as is anything not an object."""
    return list(_log(stamp(path)))


@lru_cache(64)
def _log(file: Stamp) -> tuple[dict[str, Any], ...]:
    rows = []
    with open(file.path, encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                row = json.loads(line)
            except (json.JSONDecodeError, RecursionError):
                continue
            if isinstance(row, dict):
                rows.append(row)
    return tuple(rows)


@lru_cache(_KEPT)
def tokens_of(file: Stamp) -> TokenGallery:
    """tokens.json as training writes it."""
    block = object_of(file)
    version = block.get("format_version")
    if block.get("kind") != "tokens" or not isinstance(version, int):
        raise FormatError("does not describe token pictures", where=file.path, fix="train again, or delete it")
    if version > TOKENS_VERSION:
        raise FormatError(
            f"token pictures of format {version} are newer than this Calibrant reads ({TOKENS_VERSION})",
            where=file.path,
            fix="update Calibrant",
        )
    try:
        rows, columns = block["grid"]
        names = tuple(map(str, block["class_names"]))
        pictures = tuple(
            TokenPicture(
                file.path.with_name(Path(str(p["file"])).name),
                str(p["id"]),
                int(p["label"]),
                int(p["predicted"]),
                float(p["confidence"]),
                tuple(map(int, p["tokens"])),
                tuple(map(int, p["patches"])),
            )
            for p in block["pictures"]
        )
        if any(not 0 <= p.predicted < len(names) or not -1 <= p.label < len(names) for p in pictures):
            raise ValueError("class")
        return TokenGallery(
            str(block["method"]),
            bool(block["merged"]),
            str(block["split"]),
            names,
            tuple(map(int, block["blocks"])),
            (int(rows), int(columns)),
            pictures,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise FormatError(
            "does not describe token pictures", where=file.path, fix="train again, or delete it"
        ) from None
