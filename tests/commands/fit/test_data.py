"""Who trains, who judges, who is laid aside: the rule by size, on images that exist by name only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.commands.fit.data import Rows, divided
from calibrant.errors import DataError
from calibrant.images.audit.check import check
from calibrant.images.audit.look import Look
from calibrant.images.image_set import ImageSet
from calibrant.images.listing import ImageListing

pytest.importorskip("torch")


def rows_of(a_class: int, classes: int, *, test: int = 0, equal: tuple[tuple[int, int], ...] = ()) -> Rows:
    """`equal`: pairs of learning images whose files are the same."""
    sets, looks, rng = {}, {}, np.random.default_rng(0)
    for split, count in (("train", a_class * classes), ("test", test)):
        if not count:
            continue
        ids = tuple(f"{split}/{i}.jpg" for i in range(count))
        sets[split] = ImageSet(ids, np.arange(count) % classes, files=tuple(Path(i) for i in ids))
        hashes = rng.integers(0, 2**63, (count, 2), dtype=np.uint64)
        looks[split] = [Look(i, i, 90, 80, int(p), int(d)) for i, (p, d) in zip(ids, hashes, strict=True)]
    for a, b in equal:
        first = looks["train"][a]
        looks["train"][b] = Look(looks["train"][b].id, first.sha256, 90, 80, first.p_hash, first.d_hash)
    names = tuple(f"c{k}" for k in range(classes))
    if not test:
        sets = {"all": sets["train"]}
        looks = {"all": looks["train"]}
    listing = ImageListing(Path("in"), names, sets)
    return divided(listing, check(listing, looks), seed=1)


def test_a_given_test_set_stays_and_small_sets_have_ten_folds() -> None:
    rows = rows_of(30, 3, test=9)
    assert rows.given_test
    assert rows.test is not None
    assert (len(rows.test), len(rows.learn), rows.parts) == (9, 90, 10)


def test_few_images_lose_none_to_a_test_set() -> None:
    rows = rows_of(30, 3)
    assert rows.test is None
    assert len(rows.learn) == 90
    assert "cross-validated" in rows.says()


def test_from_two_thousand_images_and_fifty_a_class_a_fifth_is_laid_aside() -> None:
    rows = rows_of(250, 10)
    assert rows.test is not None
    assert (len(rows.test), len(rows.learn), rows.parts) == (500, 2000, 5)
    assert rows_of(49, 50).test is None


def test_copies_with_one_label_train_once_and_with_two_judge_nothing() -> None:
    rows = rows_of(20, 3, equal=((0, 3), (1, 5)))  # 0 and 3 are of one class, 1 and 5 of two
    assert len(rows.learn) == 59
    out = {rows.learn.ids[i] for i in np.flatnonzero(~rows.judged)}
    assert out == {"train/1.jpg", "train/5.jpg"}
    place = {name: i for i, name in enumerate(rows.learn.ids)}
    assert rows.folds[place["train/1.jpg"]] == rows.folds[place["train/5.jpg"]]


def test_one_picture_a_class_cannot_judge() -> None:
    with pytest.raises(DataError, match="no image can judge"):
        rows_of(1, 3)
