"""From the [data] table to splits, and what is taken away from the training set on purpose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import ConfigError, DataError, did_you_mean
from calibrant.images.image_set import ImageSet
from calibrant.images.layout import Wishes
from calibrant.images.layouts import LAYOUTS, layout_of, list_images
from calibrant.images.listing import ImageListing
from calibrant.train.augment.donors import Donors
from calibrant.train.config import DataConfig, TrainConfig
from calibrant.train.data.split import Splits, refuse_shared_groups, splits_of

SAMPLER_STRENGTH = {"shuffle": 0.0, "sqrt": 0.5, "balanced": 1.0}  # of the prior correction that a sampler makes


def read_data(config: DataConfig) -> Splits:
    """The splits that the [data] table describes."""
    listing = listed(config)
    splits = splits_of(
        listing, val_fraction=config.val_fraction, test_fraction=config.test_fraction, seed=config.split_seed
    )
    splits = refuse_shared_groups(splits, listing.where)
    splits = thinned(splits, config.share, config.test_share, seed=config.split_seed)
    if config.imbalance is not None:
        thin = long_tailed(splits.train, len(splits.class_names), config.imbalance, seed=config.split_seed)
        splits = replace(splits, train=thin)
    return splits


def listed(config: DataConfig) -> ImageListing:
    """What the [data] table describes, as it lies there."""
    assert config.path is not None  # fit() refuses a configuration without
    if config.layout not in ("auto", *LAYOUTS):
        raise ConfigError(
            f'no layout "{config.layout}"', where="data.layout", fix=did_you_mean(config.layout, ("auto", *LAYOUTS))
        )
    layout = layout_of(config.path) if config.layout == "auto" else config.layout
    wishes = Wishes(config.groups, config.stage, config.train_list)
    for name in ("groups", "stage", "train_list"):  # one that is not looked at is a mistake, not a wish
        owners = [known.name for known in LAYOUTS.values() if name in known.wishes]
        if getattr(wishes, name) != getattr(Wishes(), name) and layout not in owners:
            raise ConfigError(
                f"belongs to the layout {' or '.join(owners)}, but these data are {layout}", where=f"data.{name}"
            )
    try:
        return list_images(config.path, wishes, layout=layout)
    except DataError as error:
        if config.layout == "auto" or error.fix:
            raise
        fix = f"they are read as data.layout = {layout}; if they are others, pass --set data.layout=auto"
        raise DataError(error.what, where=error.where, fix=fix) from None


def thinned(splits: Splits, share: float, test_share: float, *, seed: int) -> Splits:
    """The splits with that share of each class of the training and validation set, and of the test set."""

    def part(images: ImageSet, share: float) -> ImageSet:
        if share == 1:
            return images
        rng = np.random.default_rng(seed)
        kept = []
        for k in range(len(splits.class_names)):
            rows = rng.permutation(np.flatnonzero(images.labels == k))
            kept.append(rows[: max(1, round(share * len(rows)))])
        return images.rows(np.sort(np.concatenate(kept)))

    test = None if splits.test is None else part(splits.test, test_share)
    return replace(splits, train=part(splits.train, share), val=part(splits.val, share), test=test)


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
