"""JSON: a record per line, a list of records, or lists by column. NaN and -Infinity are read, as Python writes them."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrant.artifacts.foreign.columns import Column, Columns, from_objects
from calibrant.artifacts.foreign.delimited import read_text
from calibrant.errors import DataError, FormatError


def read_json_lines(path: Path) -> Columns:
    records = []
    try:
        with read_text(path) as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    records.append(_record(_parsed(line, path, f"line {number}"), path, f"line {number}"))
    except UnicodeDecodeError:
        raise FormatError("is not text in UTF-8", where=path) from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise FormatError(f"not JSON lines ({error})", where=path) from None
    return _from_records(records, path)


def read_json(path: Path) -> Columns:
    try:
        block = _parsed(path.read_text("utf-8-sig"), path, "the file")
    except UnicodeDecodeError:
        raise FormatError("is not text in UTF-8", where=path) from None
    if isinstance(block, list):
        return _from_records([_record(r, path, f"record {i}") for i, r in enumerate(block, 1)], path)
    if isinstance(block, dict) and block and all(isinstance(v, list) for v in block.values()):
        return Columns({str(k): from_objects(v, name=str(k), where=path) for k, v in block.items()})
    raise FormatError("holds neither records nor lists by column", where=path)


def _parsed(text: str, path: Path, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what} is not JSON ({error})", where=path) from None


def _record(value: Any, path: Path, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"{what} is no JSON object", where=path, fix='write {"logits": [...], "label": 3}')
    return value


def _by_label(value: Any) -> Any:
    """[{"label": "cat", "score": 0.9}, ...], as pipelines of Hugging Face give it, is {"cat": 0.9, ...}."""
    if not isinstance(value, list) or not value:
        return value
    if not all(isinstance(v, Mapping) and set(v) == {"label", "score"} for v in value):
        return value
    found = {str(v["label"]): v["score"] for v in value}
    return dict(sorted(found.items())) if len(found) == len(value) else value  # rows begin with their surest


def _from_records(records: list[dict[str, Any]], path: Path) -> Columns:
    if not records:
        raise DataError("holds no rows", where=path)
    names = list(dict.fromkeys(name for record in records for name in record))
    values: dict[str, Column] = {}
    for name in names:
        column = [_by_label(record.get(name)) for record in records]
        tables = [v for v in column if isinstance(v, Mapping)]
        if len(tables) == len(column):  # {"cat": .1, "dog": .9}: a column for each class
            for inner in dict.fromkeys(k for v in tables for k in v):
                values[f"{name}.{inner}"] = from_objects([v.get(inner) for v in tables], name=str(inner), where=path)
        else:
            values[name] = from_objects(column, name=name, where=path)
    return Columns(values)
