"""A temperature for each row: found where the truth has two, bounded, and near the one temperature on few rows."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import fit, metrics
from calibrant.calibration.softmax import log_softmax, softmax


def drawn(rows: int, seed: int, bend: float) -> tuple[np.ndarray, np.ndarray]:
    """The more undecided a row, the higher its temperature (bend > 0)."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 6)) * rng.uniform(0.5, 8, (rows, 1))
    top = log_softmax(z / 2).max(axis=1, keepdims=True)
    truth = softmax(z / 2 * np.exp(np.clip(bend * (top + 0.5), -0.9, 0.9)))
    return z, (truth.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)


def test_the_dependence_is_found_and_the_order_stays() -> None:
    z, y = drawn(3000, 0, 1.0)
    fresh, truth = drawn(10000, 1, 1.0)
    found = fit("adaptive-temperature", z, y)
    loss = metrics.nll(found.probabilities(fresh), truth)
    assert loss < metrics.nll(fit("temperature", z, y).probabilities(fresh), truth) - 0.002
    assert np.array_equal(found.logits(fresh).argmax(axis=1), fresh.argmax(axis=1))


def test_few_rows_stay_at_one_temperature() -> None:
    for seed in range(5):
        z, y = drawn(50, seed, 0.0)
        low, _, high = fit("adaptive-temperature", z, y).fit["row_temperatures"]
        assert high / low < 1.6


def test_far_out_a_temperature_stays_within_a_factor_e() -> None:
    z, y = drawn(500, 2, 1.0)
    found = fit("adaptive-temperature", z, y)
    far = z * 1000
    t = found.parameters["temperature"]
    ratio = found.logits(far).min(axis=1) / log_softmax(far / t).min(axis=1)
    assert ratio.min() >= np.exp(-1)
    assert ratio.max() <= np.exp(1)


def test_rows_of_weight_zero_do_not_count() -> None:
    z, y = drawn(300, 4, 1.0)
    w = np.r_[np.ones(200), np.zeros(100)]
    weighted = fit("adaptive-temperature", z, y, weights=w)
    alone = fit("adaptive-temperature", z[:200], y[:200])
    assert weighted.fit["scaled"] == pytest.approx(alone.fit["scaled"], abs=1e-3)
