"""Each label's probability against how often it is there, over the whole range from 0 to 1."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.independent.measure import measure_labels
from calibrant.errors import DataError


def logit(p: list[list[float]]) -> np.ndarray:
    q = np.asarray(p)
    return np.asarray(np.log(q / (1 - q)))


def test_figures_of_four_rows_by_hand() -> None:
    """Claims .1 .1 .9 .9 of which the first three are there: gaps |.1 - 1| and |.9 - .5|, half of the rows each."""
    present = np.array([[1], [1], [1], [0]], np.int8)
    found = measure_labels(logit([[0.1], [0.1], [0.9], [0.9]]), present, ["cat"], bins=10).labels[0]
    assert found.metrics["ece"].value == pytest.approx((0.9 + 0.4) / 2)
    assert found.metrics["brier"].value == pytest.approx((0.81 + 0.81 + 0.01 + 0.81) / 4)
    assert found.metrics["nll"].value == pytest.approx(-(3 * np.log(0.1) + np.log(0.9)) / 4)
    assert found.metrics["base_rate"].value == 0.75
    assert found.metrics["claimed"].value == pytest.approx(0.5)
    assert found.metrics["auroc"].value == pytest.approx((0.0 + 0.0 + 0.5) / 3)


def test_it_is_no_top_label_error_in_disguise() -> None:
    """A rare label that is claimed at .02 and is there in 2 % is calibrated; at .2 it is 18 points off."""
    present = np.zeros((1000, 2), np.int8)
    present[:20] = 1
    found = measure_labels(logit([[0.02, 0.2]] * 1000), present, ["right", "high"])
    assert found.labels[0].metrics["ece"].value == pytest.approx(0.0, abs=1e-9)
    assert found.labels[1].metrics["ece"].value == pytest.approx(0.18)
    assert (found.labels[0].level, found.labels[1].level) == ("trusted", "not-trusted")
    assert found.mean["ece"].value == pytest.approx(0.09)


def test_entries_that_are_not_known_do_not_count() -> None:
    present = np.array([[1, -1], [0, -1], [-1, -1]], np.int8)
    found = measure_labels(logit([[0.9, 0.5], [0.1, 0.5], [0.99, 0.5]]), present, ["a", "b"])
    assert [x.rows for x in found.labels] == [2, 0]
    assert found.labels[0].metrics["brier"].value == pytest.approx(0.01)
    assert found.labels[1].level == "unknown"
    assert found.rows == 2
    with pytest.raises(DataError, match="no row has a known label"):
        measure_labels(np.zeros((2, 1)), np.full((2, 1), -1, np.int8), ["a"])


def test_weights_are_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    z, y, w = rng.normal(size=(60, 2)), rng.integers(0, 2, (60, 2)).astype(np.int8), rng.integers(1, 4, 60)
    one = measure_labels(z, y, ["a", "b"], weights=w.astype(float)).mean
    two = measure_labels(np.repeat(z, w, axis=0), np.repeat(y, w, axis=0), ["a", "b"]).mean
    for key in one:
        assert one[key].value == pytest.approx(two[key].value), key


def test_intervals_hold_the_truth() -> None:
    """95 % intervals of the true error of a label that claims p where p ** 2 is true: 40 samples, at most 6 misses."""
    p = np.linspace(0.05, 0.95, 200)
    truth = float(np.mean(p - p**2))
    missed = 0
    for seed in range(40):
        y = (np.random.default_rng(seed).random((200, 1)) < (p**2)[:, None]).astype(np.int8)
        ece = measure_labels(logit([[v] for v in p]), y, ["a"]).labels[0].metrics["ece"]
        assert ece.low is not None
        assert ece.high is not None
        missed += not ece.low <= truth <= ece.high
    assert missed <= 6
