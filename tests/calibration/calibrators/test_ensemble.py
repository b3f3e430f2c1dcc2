"""Ensemble temperature scaling: the optimum over its weights, in the order of the logits."""

from __future__ import annotations

import numpy as np

from calibrant.calibration import Calibrator, fit
from calibrant.calibration.softmax import softmax
from tests.calibration.calibrators.conftest import half


def test_order_preserving_methods_keep_the_prediction(fitted: dict[str, Calibrator]) -> None:
    logits = half("test")[0]
    for method in ("temperature", "ensemble-temperature"):
        assert np.array_equal(fitted[method].probabilities(logits).argmax(axis=1), logits.argmax(axis=1))


def test_ensemble_temperature_is_the_likelihood_maximum_over_its_weights() -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(size=(4000, 4)) * 3
    truth = 0.6 * softmax(z / 2) + 0.2 * softmax(z) + 0.2 / 4
    y = (truth.cumsum(axis=1) > rng.random((4000, 1))).argmax(axis=1)
    found = fit("ensemble-temperature", z, y)
    w, t = np.array(found.parameters["weights"]), found.parameters["temperature"]
    parts = np.stack([softmax(z / t), softmax(z), np.full_like(z, 0.25)])[:, np.arange(4000), y]

    def loss(mix: np.ndarray) -> float:
        return float(-np.log(mix @ parts).mean())

    for i in range(3):
        for j in range(3):
            moved = w.copy()
            step = min(1e-3, moved[j])
            moved[i] += step
            moved[j] -= step
            assert loss(w) <= loss(moved) + 1e-10
