"""Ultra-FGVC (cotton, soylocal, soygene, soyageing, soyglobal): lists beside a folder of images.

As people pass it on: train.csv, val.csv, train_val.csv and test.csv with the columns class_id and dir. As its authors
pack it: images/ and anno/train.txt, anno/test.txt with lines of `FILE CLASS`.
"""

from __future__ import annotations

from pathlib import Path

from calibrant.errors import DataError
from calibrant.images.labels import class_order
from calibrant.images.layout import Layout, Wishes, lines_of
from calibrant.images.layouts.csv_list import images_of, rows_of
from calibrant.images.listing import ImageListing

# Image folders of cotton, soylocal, soygene, soyglobal and soyageing; the last one lists paths from the root.
_FOLDERS = ("cotton_square_new", "soybean200_square", "images", "soybean2000", ".")


def read(path: Path, wishes: Wishes) -> ImageListing:
    """`stage`: R1, R3 ... of soyageing, with lists of their own.

    train_list="train_val" takes both for training (the published protocol); a validation set is then drawn from it,
    since the best epoch must not be chosen on the test set.
    """
    folder, suffix = (path / "anno", ".txt") if _is_packed(path) else (path, ".csv")
    end = f"_{wishes.stage}{suffix}" if wishes.stage else suffix
    files = {"train": folder / f"{wishes.train_list}{end}", "val": folder / f"val{end}", "test": folder / f"test{end}"}
    if wishes.train_list == "train_val" or not files["val"].is_file():
        del files["val"]
    if not files["train"].is_file():
        stages = sorted(f.stem.partition("_")[2] for f in folder.glob(f"train_*{suffix}") if f.stem != "train_val")
        fix = f"choose a stage with data.stage: {', '.join(stages)}" if stages else None
        raise DataError("no such file", where=files["train"], fix=fix)
    rows = {split: _packed(file) if suffix == ".txt" else _listed(file) for split, file in files.items()}
    first = rows["train"][0][0]
    root = next((path / f for f in _FOLDERS if (path / f / first).is_file()), None)
    if root is None:
        raise DataError(f"has no image {first} in any of {', '.join(_FOLDERS)}", where=path)
    names = class_order(label for found in rows.values() for _, label in found)
    sets = {split: images_of(found, root, names, files[split]) for split, found in rows.items()}
    return ImageListing(path, names, sets, numbered=True)


def _listed(file: Path) -> list[tuple[str, str]]:
    rows = rows_of(file)
    for column in ("class_id", "dir"):
        if column not in rows[0]:
            raise DataError(f'has no column "{column}"', where=file, fix=f"it has {', '.join(rows[0])}")
    return [(row["dir"], row["class_id"].strip()) for row in rows]


def _packed(file: Path) -> list[tuple[str, str]]:
    """Lines of `FILE CLASS`; the file's name may have spaces."""
    rows = [line.strip().rpartition(" ") for line in lines_of(file) if line.strip()]
    broken = next((label for name, _, label in rows if not name), None)
    if broken is not None or not rows:
        raise DataError("has no rows" if broken is None else f'line "{broken}" is not "FILE CLASS"', where=file)
    return [(name.strip(), label) for name, _, label in rows]


def _recognises(path: Path) -> bool:
    """By its lists: other data have a train.csv of other columns beside their folders."""
    if not path.is_dir():
        return False
    heads = (lines_of(file)[:1] for file in sorted(path.glob("train*.csv"))[:1])
    return _is_packed(path) or any({"class_id", "dir"} & set(line.split(",")) for head in heads for line in head)


def _is_packed(path: Path) -> bool:
    return (path / "images").is_dir() and any((path / "anno").glob("train*.txt"))


UFG = Layout(
    "ufg",
    "Ultra-FGVC: `train.csv`, `val.csv`, `test.csv` with `class_id`, `dir`, or `images/` and `anno/*.txt`",
    _recognises,
    read,
    wishes=("stage", "train_list"),
)
