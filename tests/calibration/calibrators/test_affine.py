"""Affine maps: the optimum of the reference, weights, and a fixed term inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibrant.calibration import fit, metrics
from tests.calibration.calibrators.conftest import golden, half


@pytest.mark.parametrize(
    ("method", "options", "key", "objective"),
    [
        ("vector", {"penalty": 0.0}, "vector", "nll_cal"),
        ("classwise-temperature", {"penalty": 0.0}, "vector_nobias_per_class_temperature", "nll_cal"),
        ("matrix", {"penalty": 0.0}, "matrix_unregularised", "nll_cal"),
        ("dirichlet", {"penalty": 0.001}, "dirichlet_odir_lam0.001", "objective"),
        ("dirichlet", {"penalty": 0.1}, "dirichlet_odir_lam0.1", "objective"),
    ],
)
def test_affine_maps_reach_the_reference_optimum(
    method: str, options: dict[str, Any], key: str, objective: str
) -> None:
    found = fit(method, *half("cal"), **options)
    assert found.fit["converged"]
    assert found.fit["objective"] == pytest.approx(golden()["fit"][key][objective], abs=1e-8)
    assert found.fit["objective"] <= golden()["fit"][key][objective] + 1e-11
    logits, labels = half("test")
    expected = golden()["metrics_reference"][key]
    assert metrics.nll(found.probabilities(logits), labels) == pytest.approx(expected["nll"], abs=3e-7)
    assert metrics.accuracy(found.probabilities(logits), labels) == expected["accuracy"]


def test_weights_and_offset_reach_every_affine_method() -> None:
    logits, labels = (a[:800] for a in half("cal"))
    weights = np.random.default_rng(2).integers(0, 3, 800).astype(float)
    again = np.repeat(np.arange(800), weights.astype(int))
    for method in ("vector", "classwise-temperature"):
        one = fit(method, logits, labels, weights=weights, penalty=0.0).logits(logits[:5])
        two = fit(method, logits[again], labels[again], penalty=0.0).logits(logits[:5])
        assert np.allclose(one, two, atol=1e-6), method
    ratio = np.linspace(-1, 1, 10)
    inside = fit("vector", logits, labels, log_prior_ratio=ratio, strength=1.0, penalty=0.0)
    plain = fit("vector", logits, labels, penalty=0.0)
    # A free bias takes the fixed term up entirely: both give the same final probabilities.
    assert np.allclose(
        inside.probabilities(logits[:9], log_prior_ratio=ratio, strength=1.0),
        plain.probabilities(logits[:9]),
        atol=1e-6,
    )
