"""Which images train and which validate: balanced hold-out, then thinning to a long tail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import DataError
from calibrant.train.data.split import stratified

Index = NDArray[np.intp]


@dataclass(frozen=True)
class Fold:
    """Rows of the training set that train and that validate."""

    train: Index
    val: Index


def long_tail_counts(available: int, classes: int, imbalance: float, order: NDArray[np.intp]) -> NDArray[np.int64]:
    """(C,) images of each class: round(n * imbalance^(-rank / (C - 1))), rank 0 the largest; order[rank] = class."""
    rank = np.empty(classes, np.int64)
    rank[order] = np.arange(classes)
    counts = np.round(available * imbalance ** (-rank / max(1, classes - 1))).astype(np.int64)
    return np.maximum(1, counts)


def class_order(classes: int, seed: int) -> NDArray[np.intp]:
    """Classes from the most to the least frequent: RandomState(seed).permutation(C).

    The legacy generator, since published long-tail splits are made with it and its stream never changes.
    """
    return np.random.RandomState(seed).permutation(classes).astype(np.intp)  # noqa: NPY002


def hold_out(
    labels: NDArray[np.int64],
    class_names: Sequence[str],
    *,
    val_per_class: int | None,
    val_fraction: float,
    imbalance: float,
    order_seed: int,
    split_seed: int,
    has_val: bool,
) -> Fold:
    """The fold of a run. With `has_val` (the cache has a validation split) nothing is held out unless asked for.

    One stream, RandomState(split_seed), draws everything; its first draw is the class order of that seed, so that
    order_seed = split_seed gives one reproducible long-tail split.
    """
    classes = len(class_names)
    counts = np.bincount(labels, minlength=classes)
    if counts.min() == 0:
        raise DataError(f'class "{class_names[int(counts.argmin())]}" has no training images')
    rng = np.random.RandomState(split_seed)  # noqa: NPY002
    rng.permutation(classes)
    if val_per_class is None and not has_val:
        val, rest = stratified(labels, [val_fraction], class_names=class_names, seed=split_seed)
        pools = [rng.permutation(rest[labels[rest] == k]) for k in range(classes)]
        held = [val]
    else:
        take = val_per_class or 0
        pools, held = [], []
        for c, name in enumerate(class_names):
            rows = rng.permutation(np.flatnonzero(labels == c))
            if len(rows) <= take:
                raise DataError(
                    f'class "{name}" has {len(rows)} image{"s" * (len(rows) > 1)} and cannot be split: '
                    f"{take} go to validation and none is left to train on",
                    fix="add images, lower data.val_per_class, or leave the class out",
                )
            held.append(rows[:take])
            pools.append(rows[take:])
    if imbalance > 1:
        wanted = long_tail_counts(max(map(len, pools)), classes, imbalance, class_order(classes, order_seed))
        pools = [pool[: wanted[k]] for k, pool in enumerate(pools)]
    return Fold(np.concatenate(pools).astype(np.intp), np.concatenate(held).astype(np.intp))


def redraw(fold: Fold, labels: NDArray[np.int64], seed: int) -> Fold:
    """Another division of the same images: every class keeps how many train and how many validate."""
    rng = np.random.default_rng(seed)
    train, val = [], []
    for k in np.unique(labels[fold.val]):
        own = fold.train[labels[fold.train] == k]
        mixed = rng.permutation(np.concatenate([own, fold.val[labels[fold.val] == k]]))
        train.append(mixed[: len(own)])
        val.append(mixed[len(own) :])
    rest = fold.train[~np.isin(labels[fold.train], labels[fold.val])]
    return Fold(np.concatenate([*train, rest]), np.concatenate(val))
