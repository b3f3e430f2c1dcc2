"""Evidence by Laplace's approximation: beside the integral itself, and on rows that follow a temperature or do not."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.calibrators.estimation.evidence import affordable, log_evidence
from calibrant.calibration.calibrators.estimation.near import fit_near
from calibrant.calibration.calibrators.temperature import steadied
from calibrant.calibration.softmax import log_softmax, softmax


def drawn(rows: int, shift: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, len(shift))) * 3
    return z, (softmax(z / 2 + shift).cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)


def test_it_is_near_the_integral_over_the_prior() -> None:
    z, y = drawn(40, np.array([0.5, -0.5]))
    x = log_softmax(z / steadied(z, y, None))
    rng, s = np.random.default_rng(1), 2.0
    draws = rng.normal(0, 1 / np.sqrt(2 * s * 2), (20000, 4))  # precision 2 s C on each of D and c, C = 2
    u = x[None] * (1 + draws[:, None, :2]) + draws[:, None, 2:]
    here = np.arange(len(y))
    losses = -log_softmax(u.reshape(-1, 2)).reshape(u.shape)[:, here, y].sum(axis=1)
    by_draws = np.log(np.exp(-losses + losses.min()).mean()) - losses.min() - log_softmax(x)[here, y].sum()
    near = fit_near(x, y, None, None, s, full=False)
    found = log_evidence(near, x, y, None, None, full=False)
    assert found == pytest.approx(by_draws, abs=0.15)


def test_it_speaks_for_more_than_a_temperature_only_where_there_is_more() -> None:
    def evidence(shift: np.ndarray) -> float:
        z, y = drawn(300, shift)
        x = log_softmax(z / steadied(z, y, None))
        return log_evidence(fit_near(x, y, None, None, 1.0, full=True), x, y, None, None, full=True)

    calm, shifted = evidence(np.zeros(4)), evidence(np.array([1.5, 0, 0, -1.5]))
    assert calm < 0 < 10 < shifted


def test_a_hessian_of_a_hundred_classes_is_not_tried() -> None:
    assert affordable(30, full=True)
    assert not affordable(100, full=True)
    assert affordable(100, full=False)
