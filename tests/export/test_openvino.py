"""Another engine runs the file and agrees."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calibrant.calibration import Calibrator
from calibrant.export.checks.parity import session

from .conftest import CLASSES, pixels

C = len(CLASSES)


def by_openvino(path: Path, feeds: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        openvino = pytest.importorskip("openvino")
        core = openvino.Core()
        # its default on a CPU with bfloat16 is bfloat16
        compiled = core.compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
        result = compiled(feeds)
        return {name: np.asarray(value) for port, value in result.items() for name in port.get_names()}


@pytest.mark.parametrize("method", ["none", "vector", "isotonic", "beta"])
def test_openvino_agrees_with_onnxruntime(variant: Any, method: str) -> None:
    y = [[0.0, 0.2, 0.7, 1.0]] * C
    calibrators = {
        "none": None,
        "vector": Calibrator("vector", C, {"weights": [0.5, 1, 1.5, 2, 0.7], "bias": [0.1, -0.2, 0, 0.3, 1]}),
        "isotonic": Calibrator("isotonic", C, {"x": [[0.0, 0.2, 0.6, 1.0]] * C, "y": y, "kind": "linear"}),
        "beta": Calibrator("beta", C, {"a": [0.8] * C, "b": [1.1] * C, "c": [0.1] * C}),
    }
    path, _ = variant(calibrator=calibrators[method], adjust=1.0, ood={"kind": "energy"})
    for rows in (1, 3):
        feeds = {"images": pixels(rows, seed=4)}
        expected = dict(zip(("probabilities", "logits", "ood_score"), session(path).run(None, feeds), strict=True))
        got = by_openvino(path, feeds)
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, atol=2e-5, err_msg=name)


def test_openvino_takes_required_knobs(variant: Any) -> None:
    path, _ = variant(knobs="required")
    rng = np.random.default_rng(0)
    feeds: dict[str, NDArray[Any]] = {
        "images": pixels(3), "temperature": rng.uniform(0.5, 2, (3, 1)).astype(np.float32),
        "adjust_strength": np.ones((3, 1), np.float32), "log_prior_ratio": rng.normal(size=(3, C)).astype(np.float32),
    }  # fmt: skip
    expected = session(path).run(["logits"], feeds)[0]
    np.testing.assert_allclose(by_openvino(path, feeds)["logits"], expected, atol=2e-5)
