"""Dividing a set of images, class by class, and keeping groups (one plant, one patient, one burst) together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import DataError
from calibrant.train.data.image_set import ImageSet


def stratified(
    labels: NDArray[np.int64], fractions: Sequence[float], *, class_names: Sequence[str], seed: int = 42
) -> list[NDArray[np.intp]]:
    """Index arrays, one per fraction and one for the rest, each sorted; every class is in all of them while it can be.

    A class of n images gives round(fraction * n) of them to each part, at least one, and keeps at least one in the
    rest; where n is too small for that, later fractions go without. One image cannot be split and is refused.
    """
    rng = np.random.default_rng(seed)
    parts: list[list[NDArray[np.intp]]] = [[] for _ in range(len(fractions) + 1)]
    for k, name in enumerate(class_names):
        rows = rng.permutation(np.flatnonzero(labels == k))
        if len(rows) == 1:
            raise DataError(
                f'class "{name}" has one image and cannot be split',
                fix="add images, remove the class, or bring a train/ and a val/ folder",
            )
        start = 0
        for part, fraction in zip(parts, fractions, strict=False):
            if fraction <= 0:
                continue
            take = min(max(1, round(fraction * len(rows))), len(rows) - 1 - start)
            part.append(rows[start : start + max(0, take)])
            start += max(0, take)
        parts[-1].append(rows[start:])
    return [np.sort(np.concatenate(part)) if part else np.zeros(0, np.intp) for part in parts]


def grouped(
    labels: NDArray[np.int64],
    groups: Sequence[str],
    fractions: Sequence[float],
    *,
    class_names: Sequence[str],
    seed: int = 42,
) -> list[NDArray[np.intp]]:
    """As `stratified`, with whole groups: each group goes where the shares of its classes lack most.

    Groups are dealt in random order, largest first, to the part whose wanted counts (fraction * class size) are
    furthest from met, so shares are near the fractions and never exact.
    """
    names, group_of = np.unique(np.asarray(groups), return_inverse=True)
    rest = 1.0 - sum(fractions)
    wanted = np.outer([*fractions, rest], np.bincount(labels, minlength=len(class_names)))  # (parts, classes)
    rng = np.random.default_rng(seed)
    sizes = np.bincount(group_of)
    order = sorted(rng.permutation(len(names)), key=lambda g: -sizes[g])
    part_of = np.zeros(len(names), np.intp)
    left = wanted.copy()
    for g in order:
        counts = np.bincount(labels[group_of == g], minlength=len(class_names))
        # Share of this group's images that each part still wants; ties go to the part that lacks most in all.
        gain = np.minimum(left, counts).sum(1) / counts.sum()
        part_of[g] = max(range(len(wanted)), key=lambda i: (round(gain[i], 9), left[i].sum()))
        left[part_of[g]] = np.maximum(0, left[part_of[g]] - counts)
    parts = [np.flatnonzero(part_of[group_of] == i) for i in range(len(wanted))]
    missing = set(range(len(class_names))) - set(labels[parts[-1]].tolist())
    if missing:
        name = class_names[min(missing)]
        raise DataError(
            f'class "{name}" has too few groups: none is left for training', fix="use smaller fractions or finer groups"
        )
    return parts


def divide(
    images: ImageSet, fractions: Sequence[float], *, class_names: Sequence[str], seed: int = 42
) -> list[ImageSet]:
    """The set in len(fractions) + 1 parts, by groups where it has any."""
    if images.groups is not None:
        index = grouped(images.labels, images.groups, fractions, class_names=class_names, seed=seed)
    else:
        index = stratified(images.labels, fractions, class_names=class_names, seed=seed)
    return [images.rows(part) for part in index]
