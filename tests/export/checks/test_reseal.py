"""A file that another tool changed can be edited again once it has answered as before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration import fit
from calibrant.calibration.softmax import softmax
from calibrant.errors import CheckFailed, FormatError
from calibrant.export import edit
from calibrant.export.checks.parity import session
from calibrant.export.checks.reseal import reseal

from ..conftest import pixels

X = pixels(8)


def logits(path: Path) -> np.ndarray:
    return session(path).run(["logits"], {"images": X})[0]


def optimised(path: Path, out: Path) -> Path:
    """What onnxruntime writes after its fusions: names gone, operators merged."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(out)
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return out


def renamed(path: Path, out: Path) -> Path:
    """All inner names changed, and the metadata gone, as a simplifier may do."""
    from calibrant.export.graph.cutting import rename_all

    model = onnx.load(str(path))
    outputs = {o.name for o in model.graph.output}
    inner = [o for n in model.graph.node for o in n.output if o not in outputs]
    names = {o: f"x{i}" for i, o in enumerate([*inner, *(t.name for t in model.graph.initializer)])}
    rename_all(model.graph, names)
    for i, node in enumerate(model.graph.node):
        node.name = f"node{i}"
    del model.metadata_props[:]
    onnx.save(model, str(out))
    return out


@pytest.mark.parametrize("change", [optimised, renamed])
def test_a_changed_file_is_edited_again(change: object, deployed: Path, tmp_path: Path) -> None:
    changed = change(deployed, tmp_path / "changed.onnx")  # type: ignore[operator]
    with pytest.raises(FormatError):
        edit.set_threshold(changed, 0.5)
    done = reseal(changed, deployed)
    assert done.proof.passed
    np.testing.assert_allclose(softmax(logits(changed)), softmax(logits(deployed)), atol=1e-6)
    rng = np.random.default_rng(0)
    z = rng.normal(0, 3, (200, 5))
    calibrator = fit("temperature", z, rng.integers(0, 5, 200))
    t = float(calibrator.parameters["temperature"])
    edit.recalibrate(changed, calibrator)
    np.testing.assert_allclose(softmax(logits(changed)), softmax(logits(deployed) / t), atol=1e-5)
    assert OnnxFile.open(changed).card().history[0]["what"].startswith("resealed")


def test_a_calibrated_file_keeps_its_calibrator(variant: object, deployed: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    fitted = fit("isotonic", rng.normal(0, 3, (200, 5)), rng.integers(0, 5, 200))
    path, _ = variant(calibrator=fitted)  # type: ignore[operator]
    changed = renamed(path, tmp_path / "changed.onnx")
    reseal(changed, path)
    np.testing.assert_allclose(softmax(logits(changed)), softmax(logits(path)), atol=1e-5)
    edit.recalibrate(changed, None)
    np.testing.assert_allclose(softmax(logits(changed)), softmax(logits(deployed)), atol=1e-5)


def test_half_precision_becomes_a_float32_tail(deployed: Path, tmp_path: Path) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    changed = tmp_path / "half.onnx"
    onnx.save(convert_float_to_float16(onnx.load(str(deployed)), keep_io_types=True), str(changed))
    done = reseal(changed, deployed)
    assert (done.precision, done.card.precision["dtype"]) == ("float16", "float16")
    weights = {t.name: t for t in onnx.load(str(changed)).graph.initializer}
    assert numpy_helper.to_array(weights["calibrant/head.weight"]).dtype == np.float32
    edit.set_threshold(changed, 0.5)


def test_another_answer_is_refused(deployed: Path, tmp_path: Path) -> None:
    model = onnx.load(str(deployed))
    kernel = next(t for t in model.graph.initializer if len(t.dims) == 4)
    kernel.CopyFrom(numpy_helper.from_array(1.2 * numpy_helper.to_array(kernel), kernel.name))
    changed = tmp_path / "changed.onnx"
    onnx.save(model, str(changed))
    with pytest.raises(CheckFailed, match="does not answer as tiny.onnx does"):
        reseal(changed, deployed)


def test_other_names_of_inputs_are_named(deployed: Path, tmp_path: Path) -> None:
    from calibrant.export.graph.cutting import rename

    model = onnx.load(str(deployed))
    rename(model, "images", "input.1")
    onnx.save(model, str(tmp_path / "changed.onnx"))
    with pytest.raises(FormatError, match=r"takes input\.1 and gives probabilities"):
        reseal(tmp_path / "changed.onnx", deployed)
