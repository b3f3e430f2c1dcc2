"""A calibrator in memory and in JSON: probabilities, the affine form, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibrant.calibration import Calibrator
from calibrant.errors import FormatError
from tests.calibration.calibrators.conftest import PLAIN, half


@pytest.mark.parametrize("method", PLAIN)
def test_rows_stay_probabilities_and_json_round_trips(fitted: dict[str, Calibrator], method: str) -> None:
    logits = half("test")[0][:400]
    calibrator = fitted[method]
    probs = calibrator.probabilities(logits)
    assert np.allclose(probs.sum(axis=1), 1.0, atol=1e-12)
    assert float(probs.min()) > 0
    again = Calibrator.from_json(calibrator.to_json())
    assert np.array_equal(again.probabilities(logits), probs)


@pytest.mark.parametrize("method", PLAIN)
def test_affine_form_is_the_map_itself(fitted: dict[str, Calibrator], method: str) -> None:
    logits = half("test")[0][:50].astype(np.float64)
    affine = fitted[method].as_affine()
    if affine is None:
        one_by_one = {"isotonic", "histogram", "beta", "spline", "venn-abers"}
        one_by_one |= {"adaptive-temperature", "order-preserving"}
        assert method in {"dirichlet", "structured", "structured-vector", "ensemble-temperature", *one_by_one}
        return
    a, c = affine.a, affine.c
    mapped = (a * logits if a.ndim == 1 else logits @ a.T) + c
    assert np.allclose(mapped, fitted[method].logits(logits), atol=1e-9)


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        ("vector", {"weights": [1.0]}, "weights"),
        ("matrix", {"matrix": [[1.0]]}, "matrix"),
        ("isotonic", {"kind": "cubic"}, "kind"),
        ("isotonic", {"x": [[0.0, 0.0]] * 10, "y": [[0.0, 1.0]] * 10}, "increasing"),
        ("histogram", {"values": [[2.0] * 15] * 10}, "shares"),
        ("beta", {"a": [-1.0] * 10}, "negative"),
        ("ensemble-temperature", {"weights": [0.5, 0.5, 0.5]}, "sum to one"),
        ("structured", {"inputs": "pixels"}, "inputs"),
    ],
)
def test_damaged_parameters_are_refused_by_name(
    fitted: dict[str, Calibrator], method: str, change: dict[str, Any], message: str
) -> None:
    block = fitted[method].to_dict()
    block["parameters"] = {**block["parameters"], **change}
    with pytest.raises(FormatError, match=message):
        Calibrator.from_dict(block)
