"""Every format of foreign predictions, one record each: its endings and its reader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from calibrant.artifacts.foreign.arrow import read_parquet
from calibrant.artifacts.foreign.columns import Columns
from calibrant.artifacts.foreign.delimited import read_delimited
from calibrant.artifacts.foreign.json_records import read_json, read_json_lines
from calibrant.artifacts.foreign.numpy_files import read_npy, read_npz
from calibrant.artifacts.foreign.torch_file import read_torch
from calibrant.errors import FormatError


@dataclass(frozen=True)
class Format:
    endings: tuple[str, ...]
    read: Callable[[Path], Columns]


FORMATS = (
    Format((".parquet", ".pq"), read_parquet),
    Format((".npz",), read_npz),
    Format((".npy",), read_npy),
    Format((".csv", ".tsv", ".txt"), read_delimited),
    Format((".jsonl", ".ndjson"), read_json_lines),
    Format((".json",), read_json),
    Format((".pt", ".pth"), read_torch),
)
ENDINGS = tuple(ending for f in FORMATS for ending in f.endings)
LIGHT_ENDINGS = tuple(e for e in ENDINGS if e not in (".pt", ".pth"))  # read without torch
_PACKED = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson")  # also as .csv.gz
_PICKLES = (".pkl", ".pickle", ".joblib")


def read_columns(path: Path) -> Columns:
    if path.is_dir():
        return read_parquet(path)
    ending = path.suffix.lower()
    if ending == ".gz" and Path(path.stem).suffix.lower() in _PACKED:
        ending = Path(path.stem).suffix.lower()
    if ending in _PICKLES:
        raise FormatError("is a pickle, which could run code and is never opened", where=path, fix="save an npz")
    for known in FORMATS:
        if ending in known.endings:
            return known.read(path)
    raise FormatError(f'"{ending}" is no format of predictions', where=path, fix=f"known are {', '.join(ENDINGS)}")
