"""A CSV list of images: a column of paths (from the file's folder), one of labels, splits and groups if any."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibrant.errors import DataError, did_you_mean
from calibrant.images.image_set import ImageSet
from calibrant.images.labels import ALL, class_order, split_name
from calibrant.images.layout import Layout, Wishes
from calibrant.images.listing import ImageListing

PATHS = ("path", "file", "filename", "image", "image_path", "dir")
LABELS = ("label", "class", "class_name", "class_id", "species")

Row = dict[str, str]


def read(path: Path, wishes: Wishes) -> ImageListing:
    """Rows without a label, and lists without such a column, are images of an unknown class."""
    rows = rows_of(path)
    paths, groups = _column(rows, PATHS, path), wishes.groups
    label = next((name for name in LABELS if name in rows[0]), None)
    if groups is not None and groups not in rows[0]:
        raise DataError(f'has no column "{groups}"', where=path, fix=did_you_mean(groups, rows[0]))
    names = class_order(v for row in rows if (v := _label(row, label)))
    whole = images_of([(row[paths], _label(row, label)) for row in rows], path.parent, names, path)
    if groups is not None:
        whole = ImageSet(whole.ids, whole.labels, whole.files, groups=tuple(row[groups] for row in rows))
    splits = np.asarray([split_name(row["split"] or "") if "split" in row else ALL for row in rows])
    found = {str(s): whole.rows(np.flatnonzero(splits == s)) for s in dict.fromkeys(splits.tolist())}
    bare = f"has no column {' or '.join(LABELS)} (it has {', '.join(rows[0])})"
    return ImageListing(path, names, found, numbered=True, bare=bare)


def rows_of(file: Path) -> list[Row]:
    try:
        with open(file, newline="", encoding="utf-8-sig") as stream:
            rows = list(csv.DictReader(stream))
    except FileNotFoundError:
        raise DataError("no such file", where=file) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"not a CSV file ({error})", where=file) from None
    if not rows:
        raise DataError("has no rows", where=file)
    return rows


def images_of(rows: Sequence[tuple[str, str]], root: Path, names: Sequence[str], where: Path) -> ImageSet:
    """Rows of (path, label). The first line of a list is its header."""
    index = {name: k for k, name in enumerate(names)}
    files = tuple(root / name for name, _ in rows)
    missing = [i for i, file in enumerate(files) if not file.is_file()]
    if missing:
        raise DataError(
            f"line {missing[0] + 2} names {files[missing[0]]}, which does not exist"
            + (f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""),
            where=where,
        )
    labels = np.asarray([index.get(label, -1) for _, label in rows], np.int64)
    return ImageSet(tuple(name for name, _ in rows), labels, files=files)


def _column(rows: Sequence[Row], names: Sequence[str], where: Path) -> str:
    found = next((name for name in names if name in rows[0]), None)
    if found is None:
        raise DataError(f"has no column {' or '.join(names)}", where=where, fix=f"it has {', '.join(rows[0])}")
    return found


def _label(row: Row, column: str | None) -> str:
    return "" if column is None else (row[column] or "").strip()


CSV = Layout(
    "csv",
    "`list.csv` with the columns `path`, `label` and, where you like, `split`",
    lambda path: path.is_file() and path.suffix.lower() == ".csv",
    read,
    wishes=("groups",),
)
