"""The choice among methods."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import fit
from calibrant.calibration.calibrators.auto import _interval
from calibrant.calibration.softmax import softmax
from tests.calibration.calibrators.conftest import half


def test_auto_takes_the_simplest_that_is_not_clearly_worse() -> None:
    rng = np.random.default_rng(5)
    z = rng.normal(size=(1500, 4)) * 4
    y = (softmax(z / 2).cumsum(axis=1) > rng.random((1500, 1))).argmax(axis=1)  # a temperature is the truth
    found = fit("auto", z, y, candidates=("temperature", "vector", "structured"))
    assert found.method == "temperature"
    table = found.fit["auto"]["methods"]
    assert set(table) == {"temperature", "vector", "structured"}
    assert table["temperature"]["low"] < table["temperature"]["nll"] < table["temperature"]["high"]
    logits, labels = (a[:1200] for a in half("cal"))
    best = fit("auto", logits, labels, candidates=("temperature", "vector"))
    assert best.method == "vector"  # class-dependent shift: bias terms pay
    assert "lowest" in best.fit["auto"]["why"]


def test_auto_keeps_the_simpler_method_while_the_gain_could_be_noise() -> None:
    rng = np.random.default_rng(6)
    z = rng.normal(size=(600, 3)) * 4
    shift = np.array([0.06, 0.0, -0.06])
    y = (softmax(z / 2 + shift).cumsum(axis=1) > rng.random((600, 1))).argmax(axis=1)
    found = fit("auto", z, y, candidates=("temperature", "vector"))
    assert found.fit["auto"]["best"] == "vector"
    assert found.method == "temperature"
    assert "cannot be told" in found.fit["auto"]["why"]


@pytest.mark.parametrize("weights", [None, np.full(4, 3.0)])
def test_the_interval_of_a_loss_is_students_of_as_many_rows_as_there_are(weights: np.ndarray | None) -> None:
    low, high = _interval(np.array([1.0, 2.0, 3.0, 6.0]), weights)
    # mean 3, t(3) at 97.5 % = 3.18245; s^2 = 14/3, with weights the sum of squares over n: 14/4
    half = 3.18245 * np.sqrt((14 / 3 if weights is None else 14 / 4) / 4)
    assert (low, high) == pytest.approx((3 - half, 3 + half), abs=1e-4)
