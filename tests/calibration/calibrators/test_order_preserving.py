"""One curve for all logits: the order of every row stays, a bent truth is found, few rows stay at the temperature."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import Calibrator, fit, metrics
from calibrant.errors import FormatError
from tests.calibration.calibrators.one_vs_rest.test_spline import drawn


def test_every_row_keeps_the_order_of_its_classes() -> None:
    z, y = drawn(300, 0, 1.5)
    found = fit("order-preserving", z, y)
    assert np.array_equal(np.argsort(found.logits(z), axis=1), np.argsort(z, axis=1))


def test_a_bent_truth_is_found() -> None:
    z, y = drawn(4000, 0, 1.5)
    fresh, truth = drawn(10000, 1, 1.5)
    nll = {m: metrics.nll(fit(m, z, y).probabilities(fresh), truth) for m in ("order-preserving", "temperature")}
    assert nll["order-preserving"] < nll["temperature"] - 0.002


def test_few_rows_stay_at_the_temperature_and_weights_and_priors_have_their_part() -> None:
    z, y = drawn(50, 2, 0.0)
    found = fit("order-preserving", z, y)
    assert np.abs(np.log(found.fit["scaled"])).max() < 0.6
    z, y = drawn(300, 4, 1.0)
    w = np.r_[np.ones(200), np.zeros(100)]
    weighted = fit("order-preserving", z, y, weights=w)
    alone = fit("order-preserving", z[:200], y[:200])
    assert weighted.parameters["slopes"] == pytest.approx(alone.parameters["slopes"], abs=1e-3)
    ratio = np.array([2.0, 0, 0, 0, 0, -2.0])
    inside = fit("order-preserving", z, y, log_prior_ratio=ratio, strength=1.0)
    losses = [metrics.nll(f.probabilities(z, log_prior_ratio=ratio, strength=1.0), y)
              for f in (inside, fit("order-preserving", z, y))]  # fmt: skip
    assert losses[0] < losses[1]


def test_knots_that_do_not_fall_are_refused() -> None:
    block = fit("order-preserving", *drawn(60, 1, 0.0)).to_dict()
    block["parameters"]["knots"] = [-2.0, -1.0, -4.0, -8.0]
    with pytest.raises(FormatError, match="knots"):
        Calibrator.from_dict(block)
