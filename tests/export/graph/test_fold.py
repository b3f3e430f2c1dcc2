"""What goes into a classifier's weights, and whether it comes out again; by hand."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.calibrators.steps import Affine
from calibrant.export.graph.fold import apply_gauge, onto, recoverable, stored, tail_steps

W, B = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, -1.0])


def test_a_scale_and_a_matrix_behind_a_classifier() -> None:
    scale = Affine(np.array([2.0, 3.0]), np.array([0.5, -0.5]))
    for weight, bias in (onto(scale, W, B), stored(scale, W, B)):
        assert (weight.tolist(), bias.tolist()) == ([[2, 4], [9, 12]], [2.5, -3.5])
    matrix = Affine(np.array([[1.0, 1.0], [0.0, 2.0]]), np.array([0.5, -0.5]))
    for weight, bias in (onto(matrix, W, B), stored(matrix, W, B)):
        assert (weight.tolist(), bias.tolist()) == ([[4, 6], [6, 8]], [0.5, -2.5])


@pytest.mark.parametrize(
    ("scale", "moved", "comes_back"),
    [(2.0, 0.5, True), (1e-3, 0.0, True), (1e-3, 0.5, False), (1e-9, 100.0, False), (0.0, 0.0, False)],
)
def test_a_classifier_comes_back_unless_its_bias_has_drowned(scale: float, moved: float, comes_back: bool) -> None:
    assert recoverable(Affine(np.full(2, scale), np.full(2, moved)), B) is comes_back


def test_the_gauge_takes_the_mean_and_a_prior_is_subtracted() -> None:
    z = np.array([[1.0, 2.0, 6.0]])
    assert apply_gauge(z, "mean") == pytest.approx(np.array([[-2, -1, 3]]))
    (step,) = tail_steps(3, gauge="mean", class_temperatures=[1.0, 2.0, 0.5], shift=np.array([0.0, 1.0, 2.0]))
    assert isinstance(step, Affine)
    assert step(z) == pytest.approx(np.array([[-2, -1.5, 4]]))  # one map, all merged
