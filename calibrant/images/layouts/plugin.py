"""Data sets of plugins: map-style (picture, label) as torch has them, or Hugging Face `datasets`, one or by split.

--data plugin:NAME --plugin mine.py
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant import plugins
from calibrant.errors import ConfigError, DataError, did_you_mean
from calibrant.images.image_set import ImageSet
from calibrant.images.labels import ALL, class_order, split_name
from calibrant.images.layout import Layout, Wishes
from calibrant.images.listing import ImageListing
from calibrant.progress import progress

if TYPE_CHECKING:
    from PIL import Image

_PICTURES = ("image", "img", "picture", "pixel_values")
_LABELS = ("label", "labels", "fine_label", "target", "class")


@dataclass(frozen=True)
class Drawn:
    """A picture that a data set gives when it is asked."""

    dataset: Any
    index: int
    column: str | None  # of a data set of Hugging Face
    path: Path | None = None  # of no file

    def picture(self) -> Image.Image:
        item = self.dataset[self.index]
        return as_picture(item[self.column] if self.column is not None else item[0])


def as_picture(value: Any) -> Image.Image:
    """RGB, of a PIL picture, an array or a tensor."""
    from PIL import Image

    if isinstance(value, Image.Image):
        return value.convert("RGB")
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.dtype.kind == "f":
        if not (0 <= float(array.min()) and float(array.max()) <= 1):  # noqa: SIM300
            raise DataError("gives pictures that have been normalised", fix="leave its transform out: ours follows")
        array = np.rint(255 * array)
    if array.ndim not in (2, 3) or array.dtype.kind not in "uif":
        raise DataError(f"gives {type(value).__name__} {list(np.shape(value))}, expected a picture")
    return Image.fromarray(array.astype(np.uint8)).convert("RGB")


def _recognises(path: Path) -> bool:
    return str(path).startswith(plugins.DATASET)


def _read(path: Path, wishes: Wishes) -> ImageListing:
    name = str(path).removeprefix(plugins.DATASET)
    known = plugins.registered("datasets")
    if name not in known:
        fix = did_you_mean(name, known) if known else "register it in a file and pass --plugin FILE.py"
        raise ConfigError(f'no data set "{name}"', where=path, fix=fix)
    found = known[name]()
    parts = dict(found) if isinstance(found, Mapping) else {ALL: found}
    if not parts:
        raise DataError("gives no data set", where=path)
    read = {split_name(split): _labels(dataset, path) for split, dataset in parts.items()}
    given = next((names for names, _, _ in read.values() if names is not None), None)
    words = {str(v) for names, values, _ in read.values() if names is None for v in values}
    classes = given or class_order(words)
    sets = {}
    for split, (names, values, column) in read.items():
        labels = _numbers(values, names or classes, classes, path)
        ids = tuple(f"{split}/{n}" for n in range(len(values)))
        dataset = parts[next(k for k in parts if split_name(k) == split)]
        sets[split] = ImageSet(ids, labels, tuple(Drawn(dataset, n, column) for n in range(len(values))))
    return ImageListing(path, classes, sets, named=given is not None)


def _labels(dataset: Any, where: Path) -> tuple[tuple[str, ...] | None, list[Any], str | None]:
    """Class names where it says them, the label of each row, and the column of its pictures where it has columns."""
    names = getattr(dataset, "classes", None)
    if hasattr(dataset, "column_names"):  # Hugging Face
        columns = list(dataset.column_names)
        picture = next((c for c in _PICTURES if c in columns), None)
        label = next((c for c in _LABELS if c in columns), None)
        if picture is None or label is None:
            raise DataError(f"has the columns {', '.join(columns)}, expected image and label", where=where)
        names = getattr(dataset.features[label], "names", None)
        return None if names is None else tuple(names), list(dataset[label]), picture
    values = getattr(dataset, "targets", None)
    if values is None:
        if not hasattr(dataset, "__len__"):
            raise DataError("a data set needs a length", where=where, fix="give a map-style data set, no stream")
        rows = progress(range(len(dataset)), what="read labels", total=len(dataset), unit="img")
        values = [dataset[n][1] for n in rows]
    if len(values) != len(dataset):
        raise DataError(f"has {len(values)} targets for {len(dataset)} pictures", where=where)
    plain = [v.item() if hasattr(v, "item") else v for v in values]
    return None if names is None else tuple(map(str, names)), plain, None


def _numbers(values: list[Any], own: tuple[str, ...], classes: tuple[str, ...], where: Path) -> np.ndarray[Any, Any]:
    place = {name: k for k, name in enumerate(classes)}
    table = [place.get(name, -1) for name in own]
    numbers = []
    for value in values:
        if isinstance(value, int | np.integer) and str(value) not in place:
            if not -1 <= value < len(own):
                raise DataError(f"labels contain {value} but there are {len(own)} classes", where=where)
            numbers.append(-1 if value < 0 else table[value])
        else:
            numbers.append(place.get(str(value), -1))
    return np.asarray(numbers, np.int64)


PLUGIN = Layout("plugin", "plugin:NAME, a data set of your own code", _recognises, _read)
