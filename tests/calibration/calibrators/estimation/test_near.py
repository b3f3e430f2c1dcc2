"""Maps near the identity: the penalty by hand."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.calibrators.estimation import near
from calibrant.calibration.calibrators.estimation.near import fit_near
from calibrant.calibration.softmax import log_softmax, softmax


def drawn(rows: int, shift: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = log_softmax(rng.normal(size=(rows, len(shift))) * 2)
    return x, (softmax(x + shift).cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)


def test_the_gradient_of_losses_and_penalty_is_zero_at_the_map() -> None:
    x, y = drawn(200, np.array([1.0, 0.0, -1.0]), 0)
    found = fit_near(x, y, None, None, 0.7, full=True, tolerance=1e-9)
    left = softmax(x @ found.a.T + found.c) - np.eye(3)[y]
    pull = 2 * 0.7 * (found.a - np.eye(3)) * np.where(np.eye(3, dtype=bool), 3, 6)  # C on, C (C - 1) off the diagonal
    assert left.T @ x + pull == pytest.approx(np.zeros((3, 3)), abs=0.1)


def test_a_stronger_penalty_stays_nearer() -> None:
    x, y = drawn(300, np.array([1.5, 0.0, -1.5]), 3)
    sizes = [float(np.abs(fit_near(x, y, None, None, s, full=True).c).sum()) for s in (100.0, 1.0, 0.01)]
    assert sizes == sorted(sizes)


def test_single_precision_finds_the_map_of_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = drawn(400, np.array([1.5, 0.0, 0.0, -1.5]), 4)
    double = fit_near(x, y, None, None, 0.3, full=True)
    monkeypatch.setattr(near, "_SINGLE", 1.0)
    single = fit_near(x, y, None, None, 0.3, full=True)
    losses = [-log_softmax(found(x))[np.arange(400), y].mean() for found in (double, single)]
    assert not np.array_equal(single.a, double.a)
    assert single.a.dtype == np.float64
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)
