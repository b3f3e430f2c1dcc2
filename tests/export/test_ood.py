from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration import Calibrator
from calibrant.export import edit
from calibrant.export.checks.parity import session

from .conftest import pixels
from .test_edit import CALIBRATORS
from .test_to_onnx import WithFeatures

Export = Callable[..., tuple[Path, ModelCard]]
IMAGES = pixels(6, seed=9)


def outputs(path: Path) -> dict[str, NDArray[np.float32]]:
    model = session(path)
    names = [o.name for o in model.get_outputs()]
    return dict(zip(names, model.run(names, {"images": IMAGES}), strict=True))


def energy(z: NDArray[Any]) -> NDArray[Any]:
    return -np.log(np.exp(z.astype(np.float64)).sum(1, keepdims=True))


@pytest.mark.parametrize("method", [None, "temperature", "vector", "matrix", "dirichlet"])
@pytest.mark.parametrize("knobs", ["baked", "runtime"])
def test_energy_is_of_the_networks_own_logits(deployed: Path, variant: Export, method: str | None, knobs: str) -> None:
    expected = energy(outputs(deployed)["logits"])
    calibrator = None if method is None else CALIBRATORS[method]
    path, card = variant(
        ood={"kind": "energy"}, calibrator=calibrator, adjust=1.0, knobs=knobs, class_temperatures=[0.5, 1, 1, 2, 3]
    )
    assert card.outputs == ("probabilities", "logits", "ood_score")
    np.testing.assert_allclose(outputs(path)["ood_score"], expected, atol=1e-4)
    edit.recalibrate(path, CALIBRATORS["matrix"])
    edit.adjust(path, 0.3)
    np.testing.assert_allclose(outputs(path)["ood_score"], expected, atol=1e-4)


def test_energy_survives_a_vector_that_turns_a_class_off(deployed: Path, variant: Export) -> None:
    expected = energy(outputs(deployed)["logits"])
    off = Calibrator("vector", 5, {"weights": [0.0, 1, 1, 1, 1], "bias": [-8.1, 0, 0, 0, 0]})
    path, _ = variant(ood={"kind": "energy"}, calibrator=off)
    np.testing.assert_allclose(outputs(path)["ood_score"], expected, atol=1e-4)


def test_max_softmax_is_one_minus_the_confidence(variant: Export) -> None:
    path, _ = variant(ood={"kind": "max-softmax"}, adjust=1.0)
    found = outputs(path)
    np.testing.assert_allclose(found["ood_score"][:, 0], 1 - found["probabilities"].max(1), atol=1e-6)


def test_feature_norm_by_hand(deployed: Path, variant: Export) -> None:
    path, _ = variant(ood={"kind": "feature-norm", "mu": 4.0, "sd": 0.5})
    norm = np.abs(outputs(deployed)["features"]).sum(1, keepdims=True)
    np.testing.assert_allclose(outputs(path)["ood_score"], (4.0 - norm) / 0.501, rtol=1e-4)


def test_files_with_a_feature_norm_of_their_own_features_can_be_edited(exported: Export) -> None:
    torch.manual_seed(1)
    path, _ = exported(WithFeatures(), ood={"kind": "feature-norm", "mu": 4.0, "sd": 0.5}, comparison=None)
    before = outputs(path)["ood_score"]
    edit.adjust(path, 1.0)
    np.testing.assert_array_equal(outputs(path)["ood_score"], before)


def test_every_output_has_rank_two_and_a_free_batch(variant: Export) -> None:
    path, _ = variant(ood={"kind": "energy"}, outputs=("probabilities", "logits", "features", "ood_score"))
    for value in OnnxFile.open(path).outputs:
        assert len(value.dims) == 2
        assert value.dims[0] == "N"
