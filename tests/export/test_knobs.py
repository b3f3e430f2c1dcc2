from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration import Calibrator
from calibrant.calibration.softmax import softmax
from calibrant.export import edit
from calibrant.export.checks.parity import session
from calibrant.export.graph.assemble import knob_defaults

from .conftest import CLASSES, PRIOR, pixels
from .test_edit import CALIBRATORS

Export = Callable[..., tuple[Path, ModelCard]]
C = len(CLASSES)
IMAGES = pixels(4, seed=2)
RATIO = np.log(np.array(PRIOR) * C)
TEMPERATURE = Calibrator("temperature", C, {"temperature": 1.6})


def run(path: Path, **knobs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    p, z = session(path).run(["probabilities", "logits"], {"images": IMAGES, **knobs})
    return p, z


def raw(deployed: Path) -> NDArray[np.float32]:
    return run(deployed)[1]


def test_defaults_give_what_the_baked_file_gives(deployed: Path, variant: Export) -> None:
    path, _ = variant(knobs="runtime", calibrator=TEMPERATURE, adjust=1.0)
    np.testing.assert_allclose(run(path)[1], raw(deployed) / 1.6 - RATIO, atol=1e-5)


def test_knobs_for_the_whole_batch_and_for_each_row(deployed: Path, variant: Export) -> None:
    path, _ = variant(knobs="runtime", calibrator=TEMPERATURE, class_temperatures=[1, 2, 1, 2, 1])
    z = raw(deployed) / [1, 2, 1, 2, 1]
    one = np.float32([[2.0]])
    np.testing.assert_allclose(run(path, temperature=one)[1], z / 2, atol=1e-5)
    rng = np.random.default_rng(0)
    t, a = (rng.uniform(0.5, 2, (4, 1)).astype(np.float32) for _ in range(2))
    r = rng.normal(0, 1, (4, C)).astype(np.float32)
    p, logits = run(path, temperature=t, adjust_strength=a, log_prior_ratio=r)
    np.testing.assert_allclose(logits, z / t - a * r, atol=2e-5)
    np.testing.assert_allclose(p, softmax(z / t - a * r), atol=1e-6)


def test_knobs_are_optional_inputs_and_stay_out_of_the_required_ones(variant: Export) -> None:
    path, card = variant(knobs="runtime")
    model = session(path)
    assert [i.name for i in model.get_inputs()] == ["images"]
    assert {i.name for i in model.get_overridable_initializers()} == {
        "temperature", "adjust_strength", "log_prior_ratio",
    }  # fmt: skip
    onnx.checker.check_model(onnx.load(path), full_check=True)
    assert card.knobs == "runtime"


def test_required_knobs_are_ordinary_inputs(deployed: Path, variant: Export) -> None:
    path, _ = variant(knobs="required")
    knobs = {
        "temperature": np.full((4, 1), 2, np.float32), "adjust_strength": np.ones((4, 1), np.float32),
        "log_prior_ratio": np.tile(RATIO, (4, 1)).astype(np.float32),
    }  # fmt: skip
    np.testing.assert_allclose(run(path, **knobs)[1], raw(deployed) / 2 - RATIO, atol=1e-5)
    assert len(session(path).get_inputs()) == 4


def test_adjust_and_recalibrate_move_the_defaults(deployed: Path, variant: Export) -> None:
    path, _ = variant(knobs="runtime")
    edit.recalibrate(path, TEMPERATURE)
    edit.adjust(path, 0.5)
    np.testing.assert_allclose(run(path)[1], raw(deployed) / 1.6 - 0.5 * RATIO, atol=1e-5)
    file = OnnxFile.open(path)
    assert file.array("temperature").item() == pytest.approx(1.6)
    vector = Calibrator("vector", C, {"weights": [1, 2, 1, 2, 1], "bias": [0.0] * C})
    edit.recalibrate(path, vector)  # folds, and the temperature goes back to 1
    np.testing.assert_allclose(run(path)[1], raw(deployed) * [1, 2, 1, 2, 1] - 0.5 * RATIO, atol=2e-5)


def test_moved_defaults_leave_the_hash_of_the_weights(variant: Export) -> None:
    path, card = variant(knobs="runtime", calibrator=TEMPERATURE)
    edit.recalibrate(path, None)
    edit.adjust(path, 1.0)
    assert OnnxFile.open(path).hash_weights() == card.hashes["weights"]


def test_defaults_with_an_absorbed_prior_and_a_target(deployed: Path, variant: Export) -> None:
    target = np.array([0.1, 0.1, 0.2, 0.2, 0.4])
    options: dict[str, Any] = {"adjust": 1.0, "absorbed": 1.0, "target_prior": target}
    baked = run(variant(**options)[0])[1]
    np.testing.assert_allclose(run(variant(**options, knobs="runtime")[0])[1], baked, atol=1e-5)
    np.testing.assert_allclose(softmax(baked), softmax(raw(deployed) + np.log(target)), atol=1e-5)


@pytest.mark.parametrize("knobs", ["runtime", "required"])
def test_rows_that_are_neither_one_nor_n_fail_in_the_graph(variant: Export, knobs: str) -> None:
    path, card = variant(knobs=knobs)
    rest = {} if knobs == "runtime" else knob_defaults(card)
    with pytest.raises(Exception, match="Div"):
        run(path, **{**rest, "temperature": np.ones((3, 1), np.float32)})
    many = {**rest, "temperature": np.ones((4, 1), np.float32)}
    with pytest.raises(Exception, match="Reshape|reshape|Shape mismatch"):
        session(path).run(["probabilities"], {"images": IMAGES[:1], **many})


@pytest.mark.parametrize("knobs", ["runtime", "required"])
def test_exporting_with_knobs_agrees_with_torch(exported: Export, knobs: str) -> None:
    _, card = exported(knobs=knobs, calibrator=TEMPERATURE, adjust=1.0, ood={"kind": "energy"})
    assert card.verify is not None
    assert card.verify["passed"]


def test_files_with_required_knobs_can_be_edited(deployed: Path, variant: Export) -> None:
    path, _ = variant(knobs="required")
    edit.recalibrate(path, CALIBRATORS["vector"])
    ones = np.ones((4, 1), np.float32)
    knobs = {"temperature": ones, "adjust_strength": 0 * ones, "log_prior_ratio": np.zeros((4, C), np.float32)}
    np.testing.assert_allclose(run(path, **knobs)[1], CALIBRATORS["vector"].logits(raw(deployed)), atol=2e-5)
