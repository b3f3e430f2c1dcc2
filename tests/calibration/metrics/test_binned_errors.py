"""Calibration errors of bins, by hand and beside the published evaluators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.calibration import metrics
from calibrant.errors import CalibrantError

EDGE_CASES = sorted((Path(__file__).resolve().parents[2] / "golden" / "metrics").glob("*.npz"))
THREE = np.array([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
LABELS = np.array([0, 1, 1])  # right, wrong, right


def test_three_rows_by_hand() -> None:
    # ten bins: .8 and .7 and .6 lie at the top of their bins; gaps -.2, +.6, -.3
    assert metrics.ece(THREE, LABELS, bins=10) == pytest.approx((0.2 + 0.6 + 0.3) / 3)
    halves = metrics.over_under_ece(THREE, LABELS, bins=10)
    assert (halves.over, halves.under) == (pytest.approx(0.2), pytest.approx(0.5 / 3))
    assert metrics.mce(THREE, LABELS, bins=10) == pytest.approx(0.6)
    assert metrics.rms_calibration_error(THREE, LABELS, bins=10) == pytest.approx(((0.04 + 0.36 + 0.09) / 3) ** 0.5)
    assert metrics.unweighted_ece(THREE, LABELS, bins=10) == pytest.approx((0.2 + 0.6 + 0.3) / 3)


def test_debiased_error_subtracts_what_noise_alone_gives() -> None:
    # one bin, four rows at .75, two right: gap .25; noise .5 * .5 / 3
    probs = np.array([[0.75, 0.25]] * 4)
    expected = 0.25**2 - 0.25 / 3
    assert metrics.debiased_ece(probs, [0, 0, 1, 1], bins=1) == pytest.approx(-(abs(expected) ** 0.5))


def test_a_confidence_on_an_edge_belongs_to_the_bin_below() -> None:
    # Two bins. .5 (right) lies in (0, .5], .75 (wrong) in (.5, 1]: gaps -.5 and .75. In one bin they would cancel.
    probs = np.array([[0.5, 0.5], [0.75, 0.25]])
    assert metrics.ece(probs, [0, 1], bins=2) == pytest.approx((0.5 + 0.75) / 2)


def test_confidence_one_lies_in_the_last_bin_and_zero_in_the_first() -> None:
    probs = np.array([[1.0, 0.0]] * 10)
    labels = np.array([0] * 6 + [1] * 4)
    assert metrics.ece(probs, labels) == pytest.approx(0.4)
    assert metrics.adaptive_ece(probs, labels) == pytest.approx(0.4)
    assert metrics.classwise_ece(probs, labels) == pytest.approx(0.4)  # the published evaluator drops p = 0: 0.2


def test_a_minimum_of_rows_leaves_out_bins_of_noise() -> None:
    probs = np.array([[0.9, 0.1]] * 9 + [[0.6, 0.4]])
    labels = [0] * 9 + [1]
    assert metrics.mce(probs, labels, bins=10) == pytest.approx(0.6)
    assert metrics.mce(probs, labels, bins=10, min_rows=2) == pytest.approx(0.1)


def test_a_number_of_bins_below_one_is_refused() -> None:
    with pytest.raises(CalibrantError, match="bins"):
        metrics.ece(THREE, LABELS, bins=0)


@pytest.mark.parametrize("path", EDGE_CASES, ids=lambda p: p.stem)
@pytest.mark.parametrize("bins", [15, 10])
def test_edge_cases_equal_the_published_evaluators(path: Path, bins: int) -> None:
    data = dict(np.load(path))
    probs, labels = data["probs"], data["labels"]
    halves = metrics.over_under_ece(probs, labels, bins=bins)
    single = {
        "ece": metrics.ece(probs, labels, bins=bins),
        "aece": metrics.adaptive_ece(probs, labels, bins=bins, scheme="published"),
        "cece": metrics.classwise_ece(probs, labels, bins=bins, scheme="published"),
        "oece": halves.over,
        "uece": halves.under,
    }
    for name, value in single.items():
        assert value == pytest.approx(float(data[f"{name}{bins}"]), abs=2e-6), name
    double = {
        "aece_split": metrics.adaptive_ece(probs, labels, bins=bins),
        "list_ece": metrics.ece(probs, labels, bins=bins),
    }
    if path.stem != "edges_15":  # there the list evaluators put float32 edges into another bin than their own ECE
        double |= {
            "list_mce": metrics.mce(probs, labels, bins=bins),
            "list_ace": metrics.unweighted_ece(probs, labels, bins=bins),
            "list_l2": metrics.rms_calibration_error(probs, labels, bins=bins),
        }
    for name, value in double.items():
        assert value == pytest.approx(float(data[f"{name}{bins}"]), abs=1e-9), name
    assert metrics.brier(probs, labels) == pytest.approx(float(data["brier_sum"]), abs=1e-9)
    assert metrics.accuracy(probs, labels) == float(data["acc"])
    assert metrics.nll(probs, labels, floor=1e-300) == pytest.approx(float(data["nll"]), abs=1e-9)
