from __future__ import annotations

import numpy as np
import pytest

from calibrant.errors import DataError
from calibrant.train.heads.split import class_order, hold_out, long_tail_counts, redraw


def fold(labels: np.ndarray, **changes: object):  # type: ignore[no-untyped-def, type-arg]
    names = [f"c{k}" for k in range(int(labels.max()) + 1)]
    options = {
        "val_per_class": 5, "val_fraction": 0.2, "imbalance": 1.0, "order_seed": 42, "split_seed": 42, "has_val": False,
    }  # fmt: skip
    return hold_out(labels, names, **{**options, **changes})  # type: ignore[arg-type]


def test_the_published_thinning_of_a_hundred_classes_leaves_795_images() -> None:
    labels = np.repeat(np.arange(100), 30)
    found = fold(labels, imbalance=20.0)
    counts = np.bincount(labels[found.train])
    order = np.random.RandomState(42).permutation(100)
    assert counts.sum() == 795
    assert [int(counts[k]) for k in order] == [round(25 * 20 ** (-r / 99)) for r in range(100)]
    assert np.bincount(labels[found.val]).tolist() == [5] * 100
    assert not set(found.train) & set(found.val)


def test_counts_by_hand() -> None:
    # rank 0, 1, 2 of imbalance 4: 8, 4, 2; class 2 is the most frequent
    assert long_tail_counts(8, 3, 4.0, np.asarray([2, 0, 1])).tolist() == [4, 2, 8]
    assert class_order(5, 42).tolist() == np.random.RandomState(42).permutation(5).tolist()


def test_the_seed_moves_rows_and_not_counts() -> None:
    labels = np.repeat(np.arange(4), 20)
    a, b = fold(labels, split_seed=1, imbalance=5.0), fold(labels, split_seed=2, imbalance=5.0)
    assert np.bincount(labels[a.train]).tolist() == np.bincount(labels[b.train]).tolist()
    assert set(a.train) != set(b.train)


def test_a_fraction_is_held_out_where_no_number_is_given() -> None:
    labels = np.repeat(np.arange(4), 20)
    found = fold(labels, val_per_class=None, val_fraction=0.25)
    assert np.bincount(labels[found.val]).tolist() == [5] * 4
    assert len(found.train) == 60


def test_a_validation_split_of_the_data_is_left_alone() -> None:
    labels = np.repeat(np.arange(4), 20)
    found = fold(labels, val_per_class=None, has_val=True)
    assert len(found.val) == 0
    assert len(found.train) == 80


@pytest.mark.parametrize("options", [{}, {"val_per_class": None}])
def test_a_class_with_one_image_is_named(options: dict[str, object]) -> None:
    labels = np.asarray([0] * 9 + [1] + [2] * 9)
    with pytest.raises(DataError, match='class "c1" has (1|one) image and cannot be split'):
        fold(labels, **options)


def test_a_redraw_divides_the_same_images_into_the_same_numbers() -> None:
    labels = np.repeat(np.arange(10), 30)
    first = fold(labels, imbalance=20.0)
    again, other = redraw(first, labels, 1), redraw(first, labels, 2)
    for found in (again, other):
        assert sorted([*found.train, *found.val]) == sorted([*first.train, *first.val])
        assert np.array_equal(np.bincount(labels[found.train]), np.bincount(labels[first.train]))
        assert np.array_equal(np.bincount(labels[found.val]), np.bincount(labels[first.val]))
    assert set(again.val) != set(other.val)
    assert np.array_equal(redraw(first, labels, 1).val, again.val)


def test_a_class_that_would_go_to_validation_whole_is_refused() -> None:
    with pytest.raises(DataError, match='class "c1" has 5 images and cannot be split'):
        fold(np.repeat([0, 1], [6, 5]))
