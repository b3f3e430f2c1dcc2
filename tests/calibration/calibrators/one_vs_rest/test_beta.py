"""Beta calibration equals the reference."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import fit, metrics
from tests.calibration.calibrators.conftest import golden, half


@pytest.mark.parametrize(
    ("method", "key", "tolerance"),
    [
        ("beta", "beta_ovr_betacal_abm", 2e-5),  # betacal cuts its input elsewhere
    ],
)
def test_one_vs_rest_methods_by_themselves_equal_the_reference(method: str, key: str, tolerance: float) -> None:
    logits, labels = half("test")
    alone = fit(method, *half("cal"), mixture=False)
    probs, expected = alone.probabilities(logits), golden()["metrics_reference"][key]
    assert metrics.accuracy(probs, labels) == expected["accuracy"]
    assert metrics.brier(probs, labels) == pytest.approx(expected["brier"], abs=tolerance)
    assert np.isfinite(metrics.nll(probs, labels))
