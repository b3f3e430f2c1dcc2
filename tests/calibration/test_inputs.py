"""What is accepted, and what -inf means: log 0, a class that is ruled out."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import evaluate, fit, metrics
from calibrant.calibration.adjustment import adjusted_probabilities
from calibrant.calibration.calibrators import METHODS
from calibrant.calibration.compare import compare
from calibrant.calibration.inputs import check_logits, finite_logits
from calibrant.calibration.label_shift import estimate_prior
from calibrant.calibration.softmax import softmax
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.errors import DataError

OUT = -np.inf


def rows(n: int = 400, *, wrong: bool = False, dtype: type = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Three classes; in every second row the one after the label is ruled out; with `wrong` the label of five rows."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, n)
    z = (1.5 * np.eye(3)[y] + rng.normal(size=(n, 3))).astype(dtype)
    even = np.arange(0, n, 2)
    z[even, (y[even] + 1) % 3] = OUT
    if wrong:
        z[even[:5], y[even[:5]]] = OUT
    return z, y


def test_a_row_by_hand() -> None:
    """softmax(0, -inf, log 3) = 1/4, 0, 3/4."""
    z = np.array([[0.0, OUT, np.log(3.0)]])
    np.testing.assert_allclose(softmax(check_logits(z)), [[0.25, 0.0, 0.75]])
    # 2 below the log-sum-exp (log 4) is above the lowest logit, 0, which then counts
    assert finite_logits(z, 2.0)[0, 1] == pytest.approx(min(np.log(4.0) - 2.0, 0.0))
    assert finite_logits(z, 0.5)[0, 1] == 0.0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_infinity_and_rows_of_nothing_are_refused(bad: float) -> None:
    z, y = rows()
    z[3, 1] = bad
    z[7] = OUT
    for function in (check_logits, lambda z: fit("temperature", z, y), lambda z: statistics_of(z, y)):
        with pytest.raises(DataError, match=r"logits of 2 of 400 rows hold NaN or infinity, or nothing but -infinity"):
            function(z)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("wrong", [False, True])
def test_statistics_are_those_of_the_probabilities(dtype: type, wrong: bool) -> None:
    z, y = rows(wrong=wrong, dtype=dtype)
    p = softmax(z)
    found = evaluate(statistics_of(z, y))
    assert found.zero_probability_labels == (5 if wrong else 0)
    assert np.isinf(found.nll.value) == wrong
    for name in ("accuracy", "brier", "ece", "classwise_ece", "adaptive_ece", "aurc"):
        assert found.metrics[name].value == pytest.approx(getattr(metrics, name)(p, y), abs=1e-6)
    if not wrong:
        assert found.nll.value == pytest.approx(metrics.nll(p, y), rel=1e-6)
    wide = np.concatenate([z, np.full((len(z), 97), OUT, dtype)], axis=1)  # the other way of scoring
    many = evaluate(statistics_of(wide, y))
    assert many.brier.value == pytest.approx(found.brier.value, rel=1e-6)
    assert many.zero_probability_labels == found.zero_probability_labels


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("mixture", "by-group")])
def test_no_map_brings_back_a_class_that_is_ruled_out(method: str) -> None:
    z, y = rows()
    pytest.importorskip("netcal") if method in ("bbq", "enir") else None
    x = np.random.default_rng(1).normal(size=(len(z), 4))
    p = fit(method, z, y, features=x).probabilities(z, x)
    assert (p[np.isneginf(z)] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert np.isfinite(metrics.nll(p, y))


def test_rows_whose_label_is_ruled_out_are_left_out_of_a_fit_with_a_note() -> None:
    z, y = rows(wrong=True)
    possible = np.isfinite(z[np.arange(len(y)), y])
    found, same = fit("temperature", z, y), fit("temperature", z[possible], y[possible])
    assert found.parameters == same.parameters
    assert found.fitted_on["rows"] == 400
    assert "5 of 400 rows have a label of probability 0" in found.fit["note"]
    with pytest.raises(DataError, match="label of every row"):
        fit("temperature", z[~possible], y[~possible])


def test_differences_of_infinite_losses_are_said_to_be_unknown() -> None:
    z, y = rows(wrong=True)
    found = compare(softmax(z), softmax(0.5 * z), y)
    assert np.isinf(found["nll"].first)
    assert found["nll"].low is None
    assert found["brier"].low is not None


def test_adjustment_and_estimates_of_a_prior_take_them() -> None:
    z, y = rows()
    p = adjusted_probabilities(z, log_prior_ratio=np.log([0.5, 1.0, 1.5]), strength=1.0)
    assert (p[np.isneginf(z)] == 0).all()
    found = estimate_prior(z[:300], y[:300], z[300:])
    assert np.isfinite(found.prior).all()
