"""The structured map: no worse than the public one, and careful with few rows."""

from __future__ import annotations

import numpy as np

from calibrant.calibration import Calibrator, fit, metrics
from tests.calibration.calibrators.conftest import golden, half


def test_structured_is_no_worse_than_the_best_public_method(fitted: dict[str, Calibrator]) -> None:
    logits, labels = half("test")
    best = golden()["metrics_reference"]["probmetrics.sms"]["nll"]
    # 1e-4 is a twentieth of the NLL's own standard error here, and what the public method's own choices move.
    assert metrics.nll(fitted["structured"].probabilities(logits), labels) <= best + 1e-4


def test_structured_on_logits_is_affine_and_on_log_probabilities_is_not() -> None:
    logits, labels = (a[:600] for a in half("cal"))
    on_logits = fit("structured", logits, labels, inputs="logits")
    affine = on_logits.as_affine()
    assert affine is not None
    assert np.allclose(logits @ affine.a.T + affine.c, on_logits.logits(logits), atol=1e-9)
    assert fit("structured", logits, labels, inputs="log-probabilities").as_affine() is None


def test_structured_with_few_rows_stays_near_the_temperature_where_a_free_matrix_does_not() -> None:
    logits, labels = half("cal")
    held_out, truth = half("test")
    few = np.random.default_rng(0).permutation(len(labels))[:150]
    losses = {
        method: metrics.nll(fit(method, logits[few], labels[few], **options).probabilities(held_out), truth)
        for method, options in (("structured", {}), ("temperature", {}), ("vector", {"penalty": 0.0}))
    }
    assert losses["structured"] < losses["temperature"]
    assert losses["structured"] < losses["vector"]
