"""The interval of the AURC: a mean of the errors of the surest rows, which are few and weigh much."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.evaluation import ranking
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.intervals.risk_coverage import _Risks
from calibrant.calibration.metrics.ranking import area_under_risk_coverage
from calibrant.calibration.statistics.accumulate import statistics_of_probabilities


def of(confidence: np.ndarray, right: np.ndarray) -> Measured:
    p = np.stack([confidence, 1 - confidence], axis=1)
    return ranking(statistics_of_probabilities(p, np.where(right, 0, 1)))["aurc"]


def test_what_a_row_adds_is_what_the_area_changes_by_when_its_weight_grows() -> None:
    rng = np.random.default_rng(0)
    weight, wrong = rng.uniform(0.5, 2, 30), rng.random(30) < 0.3
    base, heavy = _Risks(weight, wrong.astype(np.float64)).moves()
    place = -np.arange(30.0)
    for i in range(30):
        more = weight.copy()
        more[i] += 1e-5
        step = area_under_risk_coverage(place, wrong, more) - area_under_risk_coverage(place, wrong, weight)
        # A cell's rows weigh as a block, so the change of the block's own rate counts from it on.
        assert (base + heavy * wrong)[i] == pytest.approx(step / 1e-5 * weight.sum(), abs=2e-3)


def test_no_error_at_all_leaves_the_area_under_risk_open() -> None:
    found = of(np.full(20, 0.9), np.ones(20, bool))
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(0.161, abs=0.002)  # Wilson: 1.96^2 / (20 + 1.96^2)


def test_an_error_among_the_surest_is_not_ruled_out_by_few_that_went_well() -> None:
    """500 rows of confidence .995 and 10 errors below: as claimed, 2.5 of the sure ones were wrong on average."""
    confidence = np.concatenate([np.linspace(0.999, 0.991, 500), np.linspace(0.9, 0.6, 100)])
    right = np.concatenate([np.ones(500, bool), np.arange(100) % 10 > 0])
    found = of(confidence, right)
    assert found.high is not None
    assert found.null is not None
    assert found.high > found.null > 2 * found.value


def test_of_few_errors_the_truth_is_held() -> None:
    """Over-confident, an accuracy of .98; 150 data sets of 300 rows, at least 132 held, as in test_coverage."""
    rng = np.random.default_rng(3)
    pool = np.abs(rng.normal(5, 2, 100_000))
    true = 1 / (1 + np.exp(-pool))
    said = 1 / (1 + np.exp(-1.6 * pool))
    truth, held = area_under_risk_coverage(said, 1 - true), 0
    for _ in range(150):
        rows = rng.integers(0, len(pool), 300)
        found = of(said[rows], rng.random(300) < true[rows])
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
    assert held >= 132


def test_where_most_of_the_surest_are_wrong_it_is_the_right_ones_that_are_few() -> None:
    """Thirty rows that claim .005 to .1 and are right in .1 to .8 of cases: the lower end lay above the truth in .07 of
    sets while the errors were taken for what is few."""
    claims = np.linspace(0.1, 0.005, 20_001)
    truth = float(np.mean(np.cumsum(1 - _share_right(claims)) / np.arange(1, len(claims) + 1)))
    above = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        confidence = rng.uniform(0.005, 0.1, 30)
        right = rng.random(30) < _share_right(confidence)
        p = np.repeat(((1 - confidence) / 299)[:, None], 300, axis=1)
        p[:, 0] = confidence
        found = ranking(statistics_of_probabilities(p, np.where(right, 0, 1)))["aurc"]
        assert found.low is not None
        assert found.high is not None
        assert found.high >= truth
        above += found.low > truth
    assert above <= 0.03 * 300


def _share_right(confidence: np.ndarray) -> np.ndarray:
    return 0.1 + 0.7 * (confidence - 0.005) / 0.095
