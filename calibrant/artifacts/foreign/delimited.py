"""CSV and TSV. Every field is read as text first: no word is taken for "missing", for a class may be called NA."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from pathlib import Path
from typing import TextIO

import numpy as np

from calibrant.artifacts.foreign.columns import Column, Columns, matrix, text_column
from calibrant.errors import DataError, FormatError

_COMMA = r"^[+-]?[0-9]+(,[0-9]+)?([eE][+-]?[0-9]+)?$"
_SAID = re.compile(r'"?sep=([,;|\t])"?\s*$')
_SEPARATORS = (",", "\t", ";", "|")


def read_delimited(path: Path) -> Columns:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    header, separator, skipped = _header(path)
    options = arrow_csv.ConvertOptions(column_types={name: pa.string() for name in header}, strings_can_be_null=False)
    parse = arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    try:
        read = arrow_csv.ReadOptions(skip_rows=skipped)
        table = arrow_csv.read_csv(path, read_options=read, parse_options=parse, convert_options=options)
    except pa.ArrowException as error:
        raise FormatError(f"not a table of text ({str(error).splitlines()[0]})", where=path) from None
    if table.num_rows == 0:
        raise DataError("holds no rows", where=path)
    notes: list[str] = []
    values = {name: _column(table.column(name), name, path, notes, separator) for name in table.schema.names}
    return Columns(values, notes=tuple(notes))


def _header(path: Path) -> tuple[list[str], str, int]:
    """Names, what parts them, and how many lines stand above: spreadsheets write `sep=;` there."""
    try:
        with read_text(path) as stream:
            first = stream.readline()
            said = _SAID.match(first)
            first = stream.readline() if said else first
    except UnicodeDecodeError:
        raise FormatError("is not text in UTF-8", where=path, fix="save it as UTF-8") from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise FormatError(f"not a table of text ({error})", where=path) from None
    tabs = path.name.lower().endswith((".tsv", ".tsv.gz"))
    separator = said.group(1) if said else "\t" if tabs else max(_SEPARATORS, key=first.count)
    names = next(csv.reader([first], delimiter=separator), [])
    twice = next((n for n in names if names.count(n) > 1), None)
    if not names:
        raise DataError("is empty", where=path)
    if all(_is_number(n) for n in names) and not _ordinals(names):
        raise DataError("the first line holds numbers, not the names of columns", where=path, fix="add a header line")
    if twice is not None:
        raise DataError(f'two columns are called "{twice}"', where=path)
    return names, separator, int(said is not None)


def read_text(path: Path) -> TextIO:
    """Packed or not; a mark of byte order is no part of the first name."""
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")  # type: ignore[return-value]
    return open(path, encoding="utf-8-sig", newline="")


def _column(chunked: object, name: str, path: Path, notes: list[str], separator: str) -> Column:
    """Numbers where all filled fields are; an empty field is missing. Behind semicolons and tabs 0,5 is one too."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(chunked)
    filled = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    if filled.null_count < len(filled):
        for kind in (pa.int64(), pa.float64()):
            try:
                number: Column = filled.cast(kind).to_numpy()
                return number
            except pa.ArrowInvalid:
                continue
        if separator in ";\t" and pc.all(pc.match_substring_regex(filled, _COMMA)).as_py():
            commas: Column = pc.replace_substring(filled, ",", ".").cast(pa.float64()).to_numpy()
            return commas
    words = filled.to_pylist()
    if all(w is not None and w.startswith("[") and w.endswith("]") for w in words):
        found = _printed_lists(words, name, path)
        if found is not None:
            notes.append(f"column `{name}` holds printed lists, which keep about 8 digits: a column per class is exact")
            return found
    return text_column(words)


def _printed_lists(words: list[str], name: str, path: Path) -> Column | None:
    """numpy's or Python's print of a row; None where the items are no numbers."""
    if any("..." in w for w in words):
        raise DataError(
            f"column `{name}` holds printed arrays that numpy has shortened to `...`",
            where=path,
            fix="write a column for each class, or Parquet",
        )
    try:
        rows = [[float(v) for v in w[1:-1].replace(",", " ").split()] for w in words]
    except ValueError:
        return None
    found = matrix(rows, name=name, where=path)
    return found if np.isfinite(found).all() and found.shape[1] > 1 else None


def _ordinals(names: list[str]) -> bool:
    """Columns called 0, 1, 2, ... or 1, 2, 3, ..., as tables without names have them."""
    return all(n.isdigit() for n in names) and sorted(map(int, names)) in (
        list(range(len(names))),
        list(range(1, len(names) + 1)),
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
