"""Folds: whole groups, a share of every class, and nearly no move when an image comes."""

from __future__ import annotations

import numpy as np

from calibrant.train.data.folds import ALWAYS_TRAINS, held_out, stable_folds

LABELS = np.repeat(np.arange(3), (40, 20, 10))
NAMES = [f"image {i}" for i in range(70)]


def test_every_class_has_its_share_in_every_fold() -> None:
    folds = stable_folds(LABELS, NAMES, 5)
    for k, share in enumerate((8, 4, 2)):
        assert np.bincount(folds[k == LABELS], minlength=5).tolist() == [share] * 5


def test_a_group_is_in_one_fold() -> None:
    names = [f"plant {i // 3}" for i in range(70)]
    folds = stable_folds(LABELS, names, 5)
    for name in set(names):
        assert len({f for f, n in zip(folds, names, strict=True) if n == name}) == 1


def test_order_does_not_matter_and_a_new_image_moves_few() -> None:
    folds = stable_folds(LABELS, NAMES, 5)
    order = np.random.default_rng(0).permutation(70)
    assert np.array_equal(stable_folds(LABELS[order], [NAMES[i] for i in order], 5), folds[order])
    more = stable_folds(np.append(LABELS, 0), [*NAMES, "new"], 5)
    assert np.sum(more[:70] != folds) <= 4  # next to the four cuts of its class


def test_seeds_differ() -> None:
    assert not np.array_equal(stable_folds(LABELS, NAMES, 5, seed=1), stable_folds(LABELS, NAMES, 5, seed=2))


def test_a_class_of_one_group_is_never_judged() -> None:
    folds = stable_folds(np.asarray([0, 0, 0, 1]), ["a", "b", "c", "d"], 2)
    assert folds[3] == ALWAYS_TRAINS
    assert set(folds[:3]) == {0, 1}


def test_a_fifth_of_each_class_is_held_out() -> None:
    aside = held_out(LABELS, NAMES, 0.2)
    assert [int(aside[k == LABELS].sum()) for k in range(3)] == [8, 4, 2]
