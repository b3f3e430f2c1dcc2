"""CSV lists of images: one file with paths and labels, or a folder in the layout of the Ultra-FGVC sets."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibrant.errors import DataError, did_you_mean
from calibrant.train.data.image_set import ImageSet, Splits
from calibrant.train.data.labels import class_order, split_name
from calibrant.train.data.split import divide

_PATHS = ("path", "file", "filename", "image", "image_path", "dir")
_LABELS = ("label", "class", "class_name", "class_id", "species")
# Image folders of cotton, soylocal, soygene, soyglobal and soyageing; the last one lists paths from the root.
_UFG_FOLDERS = ("cotton_square_new", "soybean200_square", "images", "soybean2000", ".")

Row = dict[str, str]


def read_list(
    path: str | Path,
    *,
    groups: str | None = None,
    val_fraction: float = 0.2,
    test_fraction: float = 0.2,
    seed: int = 42,
) -> Splits:
    """The splits of one CSV file with a column of paths (from the file's folder), one of labels, and where there are
    `split` (train, val, test) and `groups`, the name of a column whose values must not be divided between splits.
    """
    path = Path(path)
    rows, where = _rows(path), path
    path_column, label_column = _column(rows, _PATHS, where), _column(rows, _LABELS, where)
    if groups is not None and groups not in rows[0]:
        raise DataError(f'has no column "{groups}"', where=where, fix=did_you_mean(groups, rows[0]))
    names = _class_names(rows, label_column)
    whole = _images(rows, path.parent, path_column, label_column, names, where, groups)
    if "split" not in rows[0]:
        test, val, rest = divide(whole, (test_fraction, val_fraction), class_names=names, seed=seed)
        return Splits(names, rest, val, test if len(test) else None)
    kinds = [split_name(row["split"], where=where) for row in rows]
    index = {kind: np.flatnonzero(np.asarray(kinds) == kind) for kind in ("train", "val", "test")}
    if not len(index["train"]):
        raise DataError("no row has split train", where=where)
    train, test_set = whole.rows(index["train"]), whole.rows(index["test"]) if len(index["test"]) else None
    if len(index["val"]):
        return Splits(names, train, whole.rows(index["val"]), test_set)
    val, rest = divide(train, (val_fraction,), class_names=names, seed=seed)
    return Splits(names, rest, val, test_set)


def read_ufg(
    path: str | Path, *, train_list: str = "train", stage: str | None = None, val_fraction: float = 0.2, seed: int = 42
) -> Splits:
    """A folder of Ultra-FGVC (cotton, soylocal, soygene, soyageing, soyglobal): train.csv, val.csv, train_val.csv and
    test.csv with the columns class_id (from 0) and dir. `stage`: R1, R3 ... of soyageing, with lists of their own.

    train_list="train_val" trains on both (the published protocol) and takes the validation set out of it by class,
    since the best epoch must not be chosen on the test set.
    """
    path = Path(path)
    suffix = f"_{stage}" if stage else ""
    lists = {name: path / f"{name}{suffix}.csv" for name in (train_list, "val", "test")}
    rows = {name: _rows(file) for name, file in lists.items() if name != "val" or train_list != "train_val"}
    for name, found in rows.items():
        for column in ("class_id", "dir"):
            if column not in found[0]:
                fix = f"it has {', '.join(found[0])}"
                raise DataError(f'has no column "{column}"', where=lists[name], fix=fix)
    first = rows[train_list][0]["dir"]
    folder = next((path / f for f in _UFG_FOLDERS if (path / f / first).is_file()), None)
    if folder is None:
        raise DataError(f"has no image {first} in any of {', '.join(_UFG_FOLDERS)}", where=path)
    names = _class_names([row for found in rows.values() for row in found], "class_id")
    sets = {name: _images(found, folder, "dir", "class_id", names, lists[name], None) for name, found in rows.items()}
    if train_list != "train_val":
        return Splits(names, sets[train_list], sets["val"], sets["test"])
    val, rest = divide(sets[train_list], (val_fraction,), class_names=names, seed=seed)
    return Splits(names, rest, val, sets["test"])


def _rows(file: Path) -> list[Row]:
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


def _column(rows: Sequence[Row], names: Sequence[str], where: Path) -> str:
    found = next((name for name in names if name in rows[0]), None)
    if found is None:
        raise DataError(f"has no column {' or '.join(names)}", where=where, fix=f"it has {', '.join(rows[0])}")
    return found


def _class_names(rows: Sequence[Row], column: str) -> tuple[str, ...]:
    return class_order((row[column] or "").strip() for row in rows)


def _images(
    rows: Sequence[Row], root: Path, paths: str, labels: str, names: Sequence[str], where: Path, groups: str | None
) -> ImageSet:
    index = {name: k for k, name in enumerate(names)}
    if "" in index:
        line = next(i for i, row in enumerate(rows, start=2) if not (row[labels] or "").strip())
        raise DataError(f"line {line} has no {labels}", where=where)
    if len(names) < 2:
        raise DataError(f'has one class ("{names[0]}"); a classifier needs two', where=where)
    files = tuple(root / row[paths] for row in rows)
    missing = [i for i, file in enumerate(files) if not file.is_file()]
    if missing:
        raise DataError(
            f"line {missing[0] + 2} names {files[missing[0]]}, which does not exist"
            + (f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""),
            where=where,
        )
    return ImageSet(
        tuple(row[paths] for row in rows), np.asarray([index[row[labels].strip()] for row in rows], np.int64),
        files=files, groups=None if groups is None else tuple(row[groups] for row in rows),
    )  # fmt: skip
