"""Splines of log-odds: a bent truth is found, straight beyond the knots, and few rows cost little."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import fit, metrics
from calibrant.calibration.calibrators.one_vs_rest.spline import basis
from calibrant.calibration.softmax import softmax


def drawn(rows: int, seed: int, power: float) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a network; the truth raises far rivals: u -> u + power sqrt(1 - u) on gaps."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 6)) * 4
    u = z - z.max(axis=1, keepdims=True)
    truth = softmax(u + power * np.sqrt(1 - u))
    return z, (truth.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)


def test_the_basis_is_smooth_and_straight_outside_the_knots() -> None:
    h = 1e-3
    for far in (-9.0, 5.0):
        left, here, right = basis(np.array([far - h, far, far + h]))
        assert left + right - 2 * here == pytest.approx(np.zeros(5), abs=1e-9)
    left, here, right = basis(np.array([-1 - h, -1.0, -1 + h]))
    assert (right - here) / h == pytest.approx((here - left) / h, abs=1e-2)


def test_curves_by_class_are_found_where_a_temperature_is_not_enough() -> None:
    def shifted(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(rows, 4)) * 4
        return z, (softmax(z / 2 + [1.5, 0, 0, -1.5]).cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)

    z, y = shifted(2000, 0)
    fresh, truth = shifted(10000, 1)
    nll = {m: metrics.nll(fit(m, z, y).probabilities(fresh), truth) for m in ("spline", "temperature")}
    assert nll["spline"] < nll["temperature"] - 0.01


def test_curves_rise_and_fifty_rows_cost_little() -> None:
    z, y = drawn(50, 2, 0.0)
    found = fit("spline", z, y)
    assert all((np.diff(curve) >= 0).all() for curve in found.parameters["y"])
    fresh, truth = drawn(4000, 3, 0.0)
    assert metrics.nll(found.probabilities(fresh), truth) <= (
        metrics.nll(fit("temperature", z, y).probabilities(fresh), truth) + 0.01
    )


def test_rows_of_weight_zero_do_not_count() -> None:
    z, y = drawn(300, 4, 1.0)
    w = np.r_[np.ones(200), np.zeros(100)]
    weighted = fit("spline", z, y, weights=w, mixture=False)
    alone = fit("spline", z[:200], y[:200], mixture=False)
    assert np.array(weighted.parameters["y"]) == pytest.approx(np.array(alone.parameters["y"]), abs=2e-3)
