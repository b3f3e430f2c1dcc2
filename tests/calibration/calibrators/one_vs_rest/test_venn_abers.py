"""Inductive Venn-Abers: the one pass beside isotonic regression with the row added, and the two guesses."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from calibrant.calibration import fit
from calibrant.calibration.calibrators.one_vs_rest.venn_abers import with_one
from calibrant.calibration.softmax import softmax


@pytest.mark.parametrize("seed", range(8))
def test_the_pass_equals_isotonic_regression_with_the_row_added(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    size = rng.uniform(0.3, 3, n) if seed % 2 else np.ones(n)
    hits = (rng.random(n) < rng.random()) * size
    found = with_one(size, hits)
    for i in range(n):
        y, w = hits / size, size.copy()
        y[i], w[i] = (hits[i] + 1) / (size[i] + 1), size[i] + 1
        assert found[i] == pytest.approx(isotonic_regression(y, weights=w).x[i], abs=1e-10)


def test_a_new_row_gets_p1_over_one_minus_p0_plus_p1() -> None:
    rng = np.random.default_rng(3)
    z = rng.normal(size=(60, 2)) * 2
    y = (softmax(z / 2)[:, 1] > rng.random(60)).astype(np.int64)
    found = fit("venn-abers", z, y, mixture=False)
    t = found.parameters["temperature"]
    score, fresh = softmax(z / t)[:, 1], np.array([[0.3, -0.4]])
    s = float(softmax(fresh / t)[0, 1])

    def guess(label: int) -> float:
        order = np.argsort(np.append(score, s))
        fitted = isotonic_regression(np.append(y, label)[order].astype(float)).x
        return float(fitted[np.flatnonzero(order == 60)[0]])

    p0, p1 = guess(0), guess(1)
    expected = p1 / (1 - p0 + p1)
    table = np.searchsorted(found.parameters["x"][1], s, side="right") - 1
    assert found.parameters["y"][1][table] == pytest.approx(expected, abs=1e-9)


def test_no_probability_is_zero_and_rows_of_weight_zero_do_not_count() -> None:
    rng = np.random.default_rng(4)
    z = rng.normal(size=(80, 3)) * 3
    y = z.argmax(axis=1)  # not one error
    q = fit("venn-abers", z, y, mixture=False).probabilities(z)
    assert q.min() > 1e-3
    w = np.r_[np.ones(50), np.zeros(30)]
    weighted = fit("venn-abers", z, y, weights=w, mixture=False)
    alone = fit("venn-abers", z[:50], y[:50], mixture=False)
    assert weighted.probabilities(z) == pytest.approx(alone.probabilities(z), abs=1e-3)
