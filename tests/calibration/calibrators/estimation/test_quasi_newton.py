"""The limited-memory steps reach the optimum that Newton's method reaches, in whatever metric the inputs have."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.calibrators.estimation.newton import Problem, minimise
from calibrant.calibration.calibrators.estimation.quasi_newton import minimise_scaled


@pytest.mark.parametrize("full", [True, False])
def test_the_optimum_is_newtons_own_though_inputs_lie_at_very_different_heights(full: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5)) * np.array([0.1, 1.0, 5.0, 20.0, 1.0]) - np.array([0.0, 0.0, 10.0, 30.0, 0.0])
    y = rng.integers(0, 5, 300)
    problem = Problem.full_map(x, y, None, None) if full else Problem.diagonal_map(x, y, None, None, bias=True)
    size = 30 if full else 10
    centre, penalty = np.zeros(size), np.full(size, 0.05)
    exact = minimise(problem, centre, penalty, centre=centre)
    found = minimise_scaled(problem, centre, penalty, centre=centre, tolerance=1e-8)
    assert exact.converged
    assert found.objective == pytest.approx(exact.objective, abs=1e-8)


def test_it_ends_after_the_steps_that_it_is_allowed() -> None:
    rng = np.random.default_rng(1)
    problem = Problem.full_map(rng.normal(size=(50, 3)), rng.integers(0, 3, 50), None, None)
    found = minimise_scaled(problem, np.zeros(12), np.full(12, 1e-4), centre=np.zeros(12), most_steps=2)
    assert found.steps == 2
    assert not found.converged
