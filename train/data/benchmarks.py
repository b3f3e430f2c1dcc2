"""Readers of known data sets in the layout that their authors publish, from a local folder.

Where the authors give no validation set, one is taken out of the training set by class; their test set stays whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import DataError
from calibrant.train.data.image_set import ImageSet, Splits
from calibrant.train.data.split import divide

_CIFAR_ROW = 3 * 32 * 32


def read_cub(path: str | Path, *, val_fraction: float = 0.2, seed: int = 42) -> Splits:
    """CUB-200-2011: images.txt, image_class_labels.txt, train_test_split.txt, classes.txt and images/."""
    path = Path(path)
    names = tuple(dict(_pairs(path / "classes.txt")).values())
    files = dict(_pairs(path / "images.txt"))
    labels = dict(_pairs(path / "image_class_labels.txt"))
    in_train = dict(_pairs(path / "train_test_split.txt"))
    if not files.keys() == labels.keys() == in_train.keys():
        raise DataError("images.txt, image_class_labels.txt and train_test_split.txt list other images", where=path)
    y = np.asarray([int(labels[i]) - 1 for i in files], np.int64)
    if y.min() < 0 or y.max() >= len(names):
        raise DataError(f"labels run to {y.max() + 1} but classes.txt has {len(names)} names", where=path)
    images = _listed(path / "images", list(files.values()), y)
    training = np.asarray([in_train[i] == "1" for i in files])
    return _with_validation(names, images, training, val_fraction, seed)


def read_aircraft(path: str | Path) -> Splits:
    """FGVC-Aircraft, variants: data/images/ID.jpg, data/images_variant_{train,val,test}.txt, data/variants.txt."""
    path = Path(path)
    data = path / "data" if (path / "data").is_dir() else path
    names = tuple(line.strip() for line in _lines(data / "variants.txt"))
    sets = []
    for split in ("train", "val", "test"):
        file = data / f"images_variant_{split}.txt"
        pairs = _pairs(file)
        unknown = next((name for _, name in pairs if name not in names), None)
        if unknown is not None:
            raise DataError(f'variant "{unknown}" is not in variants.txt', where=file)
        labels = np.asarray([names.index(name) for _, name in pairs], np.int64)
        sets.append(_listed(data / "images", [f"{i}.jpg" for i, _ in pairs], labels))
    return Splits(names, *sets)


def read_tiny_imagenet(path: str | Path, *, val_fraction: float = 0.2, seed: int = 42) -> Splits:
    """Tiny-ImageNet: wnids.txt, train/WNID/images/*.JPEG, val/images and val/val_annotations.txt.

    The authors' validation set is our test set (their test images have no labels), as papers use it.
    """
    path = Path(path)
    names = tuple(sorted(line.strip() for line in _lines(path / "wnids.txt") if line.strip()))
    files: list[str] = []
    labels: list[int] = []
    for k, name in enumerate(names):
        found = sorted(p.name for p in (path / "train" / name / "images").glob("*.JPEG"))
        if not found:
            raise DataError(f'class "{name}" has no images', where=path / "train" / name / "images")
        files += [f"{name}/images/{f}" for f in found]
        labels += [k] * len(found)
    whole = _listed(path / "train", files, np.asarray(labels, np.int64), prefix="train/")
    rows = [line.split("\t") for line in _lines(path / "val" / "val_annotations.txt")]
    y = np.asarray([names.index(row[1]) for row in rows], np.int64)
    test = _listed(path / "val" / "images", [row[0] for row in rows], y, prefix="val/images/")
    val, train = divide(whole, (val_fraction,), class_names=names, seed=seed)
    return Splits(names, train, val, test)


def read_cifar10(path: str | Path, *, val_fraction: float = 0.1, seed: int = 42) -> Splits:
    """CIFAR-10, binary version: data_batch_{1..5}.bin, test_batch.bin, batches.meta.txt."""
    path = _cifar_folder(Path(path), "cifar-10-batches-bin", "data_batch_1.bin")
    names = tuple(line.strip() for line in _lines(path / "batches.meta.txt") if line.strip())
    parts = [_cifar_rows(path / f"data_batch_{i}.bin", label_bytes=1) for i in range(1, 6)]
    pixels, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _cifar(path, names, pixels, labels, _cifar_rows(path / "test_batch.bin", label_bytes=1), val_fraction, seed)


def read_cifar100(path: str | Path, *, val_fraction: float = 0.1, seed: int = 42) -> Splits:
    """CIFAR-100, binary version, fine labels: train.bin, test.bin, fine_label_names.txt."""
    path = _cifar_folder(Path(path), "cifar-100-binary", "train.bin")
    names = tuple(line.strip() for line in _lines(path / "fine_label_names.txt") if line.strip())
    pixels, labels = _cifar_rows(path / "train.bin", label_bytes=2)
    return _cifar(path, names, pixels, labels, _cifar_rows(path / "test.bin", label_bytes=2), val_fraction, seed)


def _cifar_folder(path: Path, inner: str, marker: str) -> Path:
    path = path / inner if (path / inner).is_dir() else path
    if not (path / marker).is_file():
        python = any((p / "data_batch_1").is_file() or (p / "meta").is_file() for p in [path, *path.glob("cifar-*")])
        raise DataError(
            "holds the Python version of CIFAR, which is pickled and therefore never loaded"
            if python else f"has no {marker}",
            where=path, fix="unpack the authors' binary version",
        )  # fmt: skip
    return path


def _cifar_rows(file: Path, *, label_bytes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Rows of (coarse label,) label, 1024 red, 1024 green, 1024 blue."""
    row = label_bytes + _CIFAR_ROW
    try:
        raw = np.fromfile(file, np.uint8)
    except FileNotFoundError:
        raise DataError("no such file", where=file) from None
    if len(raw) == 0 or len(raw) % row:
        raise DataError(f"has {len(raw)} bytes, not a multiple of {row}", where=file)
    table = raw.reshape(-1, row)
    pixels = table[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pixels), table[:, label_bytes - 1].astype(np.int64)


def _cifar(
    path: Path, names: tuple[str, ...], pixels: NDArray[np.uint8], labels: NDArray[np.int64],
    test: tuple[NDArray[np.uint8], NDArray[np.int64]], val_fraction: float, seed: int,
) -> Splits:  # fmt: skip
    top = int(max(labels.max(), test[1].max()))
    if top >= len(names):
        raise DataError(f"labels run to {top} but there are {len(names)} class names", where=path)
    whole = ImageSet(tuple(f"train/{i}" for i in range(len(labels))), labels, pixels=pixels)
    tested = ImageSet(tuple(f"test/{i}" for i in range(len(test[1]))), test[1], pixels=test[0])
    val, train = divide(whole, (val_fraction,), class_names=names, seed=seed)
    return Splits(names, train, val, tested)


def _with_validation(
    names: tuple[str, ...], images: ImageSet, training: NDArray[np.bool_], val_fraction: float, seed: int
) -> Splits:
    val, train = divide(images.rows(np.flatnonzero(training)), (val_fraction,), class_names=names, seed=seed)
    return Splits(names, train, val, images.rows(np.flatnonzero(~training)))


def _listed(folder: Path, files: Sequence[str], labels: NDArray[np.int64], *, prefix: str = "") -> ImageSet:
    paths = tuple(folder / f for f in files)
    missing = next((p for p in paths if not p.is_file()), None)
    if missing is not None:
        raise DataError("is listed but does not exist", where=missing)
    return ImageSet(tuple(prefix + f for f in files), labels, files=paths)


def _pairs(file: Path) -> list[tuple[str, str]]:
    """Lines of `key value`, the value with its spaces."""
    pairs = [line.strip().partition(" ") for line in _lines(file) if line.strip()]
    broken = next((key for key, space, _ in pairs if not space), None)
    if broken is not None:
        raise DataError(f'line "{broken}" is not "key value"', where=file)
    return [(key, value.strip()) for key, _, value in pairs]


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise DataError("no such file", where=file) from None
