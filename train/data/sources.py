"""From the [data] table to splits: which layout it is, and what is taken away from the training set on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import ConfigError, DataError
from calibrant.train.augment.donors import Donors
from calibrant.train.config import DataConfig, TrainConfig
from calibrant.train.data.benchmarks import read_aircraft, read_cifar10, read_cifar100, read_cub, read_tiny_imagenet
from calibrant.train.data.folder import read_folder
from calibrant.train.data.image_set import ImageSet, Splits
from calibrant.train.data.lists import read_list, read_ufg
from calibrant.train.data.parquet_shards import read_parquet
from calibrant.train.data.split import refuse_shared_groups
from calibrant.train.data.tar_shards import read_tar

SAMPLER_STRENGTH = {"shuffle": 0.0, "sqrt": 0.5, "balanced": 1.0}  # of the prior correction that a sampler makes


def read_data(config: DataConfig) -> Splits:
    """The splits that the [data] table describes."""
    assert config.path is not None  # fit() refuses a configuration without
    path = config.path
    if not path.exists():
        raise DataError("no such file or folder", where=path)
    layout: str = guess_layout(path) if config.layout == "auto" else config.layout
    _refuse_unused(config, layout)
    val, test, seed = config.val_fraction, config.test_fraction, config.split_seed
    readers: dict[str, Callable[[], Splits]] = {
        "folder": lambda: read_folder(path, val_fraction=val, test_fraction=test, seed=seed),
        "csv": lambda: read_list(path, groups=config.groups, val_fraction=val, test_fraction=test, seed=seed),
        "ufg": lambda: read_ufg(path, train_list=config.train_list, stage=config.stage, val_fraction=val, seed=seed),
        "cub": lambda: read_cub(path, val_fraction=val, seed=seed),
        "aircraft": lambda: read_aircraft(path),
        "tiny-imagenet": lambda: read_tiny_imagenet(path, val_fraction=val, seed=seed),
        "cifar10": lambda: read_cifar10(path, val_fraction=val, seed=seed),
        "cifar100": lambda: read_cifar100(path, val_fraction=val, seed=seed),
        "tar": lambda: read_tar(path, val_fraction=val, test_fraction=test, seed=seed),
        "parquet": lambda: read_parquet(path, groups=config.groups, val_fraction=val, test_fraction=test, seed=seed),
    }
    try:
        splits = refuse_shared_groups(readers[layout](), path)
    except DataError as error:
        if config.layout == "auto" or error.fix:
            raise
        fix = f"they are read as data.layout = {layout}; if they are others, pass --set data.layout=auto"
        raise DataError(error.what, where=error.where, fix=fix) from None
    if config.imbalance is not None:
        splits = replace(splits, train=long_tailed(splits.train, len(splits.class_names), config.imbalance, seed=seed))
    return splits


def guess_layout(path: Path) -> str:
    """The layout by the files that only it has."""
    if path.is_file():
        if path.suffix.lower() in (".csv", ".parquet"):
            return path.suffix[1:].lower()
        raise DataError("is neither a folder nor a .csv list or .parquet shard", where=path)
    marks = {
        "cub": "train_test_split.txt", "tiny-imagenet": "wnids.txt", "cifar10": "data_batch_1.bin",
        "cifar100": "fine_label_names.txt",
    }  # fmt: skip
    for layout, mark in marks.items():
        if (path / mark).is_file():
            return layout
    if (path / "cifar-10-batches-bin").is_dir() or (path / "cifar-10-batches-py").is_dir():
        return "cifar10"
    if (path / "cifar-100-binary").is_dir() or (path / "cifar-100-python").is_dir():
        return "cifar100"
    if any((p / "images_variant_train.txt").is_file() for p in (path, path / "data")):
        return "aircraft"
    if any(path.glob("train*.csv")):
        return "ufg"
    kinds = [kind for kind in ("tar", "parquet") if any(path.glob(f"*.{kind}"))]
    if len(kinds) > 1:
        raise DataError("holds tar and Parquet shards", where=path, fix="say which: data.layout = tar or parquet")
    return kinds[0] if kinds else "folder"


def _refuse_unused(config: DataConfig, layout: str) -> None:
    """A setting that this layout would not look at is a mistake, not a wish."""
    for name, value, owners in (
        ("groups", config.groups, ("csv", "parquet")), ("stage", config.stage, ("ufg",)),
        ("train_list", config.train_list if config.train_list != "train" else None, ("ufg",)),
    ):  # fmt: skip
        if value is not None and layout not in owners:
            raise ConfigError(
                f"belongs to the layout {' or '.join(owners)}, but these data are {layout}", where=f"data.{name}"
            )


def long_tailed(images: ImageSet, num_classes: int, imbalance: float, *, seed: int) -> ImageSet:
    """The set thinned to an exponential tail: class k keeps n_max * imbalance^(-k / (C - 1)) images, at least one.

    n_max is the size of the smallest class times its share: no class is asked for more than it has, so class 0 keeps
    all it can. Source: the long-tailed CIFAR of Cui et al. 2019.
    """
    counts = images.counts(num_classes)
    share = imbalance ** (-np.arange(num_classes) / max(1, num_classes - 1))
    largest = float(np.min(counts / share))
    wanted = np.maximum(1, np.floor(largest * share + 1e-9)).astype(int)
    rng = np.random.default_rng(seed)
    kept = [rng.permutation(np.flatnonzero(images.labels == k))[: wanted[k]] for k in range(num_classes)]
    return images.rows(np.sort(np.concatenate(kept)))


def sampling_weights(images: ImageSet, num_classes: int, power: float) -> NDArray[np.float64] | None:
    """Weight of each image when classes are drawn by n_c^(1 - power): 1 makes classes equal; 0 gives None (shuffle)."""
    if power == 0:
        return None
    return images.counts(num_classes).astype(np.float64)[images.labels] ** -power


def donors_of(config: TrainConfig, images: ImageSet, counts: NDArray[np.int64]) -> Donors | None:
    """Who lends patches (augment.transplant), rare being what the sampler draws rarely. counts: (C,), none zero."""
    if not config.augment.transplant:
        return None
    drawn = counts.astype(np.float64) ** (1 - SAMPLER_STRENGTH[config.data.sampler])
    drawn *= counts.sum() / drawn.sum()
    return Donors(images.labels, drawn, rate=config.augment.transplant, seed=config.seed)
