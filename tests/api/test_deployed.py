"""Somebody else's file becomes an object in one call."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import calibrant

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the exporter that most files come from
def test_a_foreign_file_is_adopted_opened_and_calibrated(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(4, 3),
    ).eval()  # fmt: skip
    torch.onnx.export(network, (torch.zeros(1, 3, 16, 16),), tmp_path / "theirs.onnx", dynamo=False,
                      input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "n"}, "y": {0: "n"}})  # fmt: skip
    z = np.random.default_rng(0).normal(size=(90, 3)) * 3
    labels = np.where(np.arange(90) % 3 == 0, np.arange(90) // 3 % 3, z.argmax(1))
    calibrator = calibrant.fit(z, labels, class_names="abc", kind="logits")
    model = calibrant.adopt(
        tmp_path / "theirs.onnx", tmp_path / "ours.onnx", classes=list("abc"), calibrator=calibrator
    )
    assert "3 classes, 16 x 16, calibrated by temperature" in repr(model)
    pictures = np.random.default_rng(1).random((5, 16, 16, 3)).astype(np.float32)
    pixels = np.rint(pictures * 255) / 255
    with torch.no_grad():
        logits = network(torch.from_numpy(pixels).float().permute(0, 3, 1, 2)) / calibrator.parameters["temperature"]
    np.testing.assert_allclose(model.predict(pictures).probabilities, logits.softmax(1).numpy(), atol=1e-5)
    again = calibrant.load(tmp_path / "ours.onnx", threads=1)
    np.testing.assert_array_equal(again.predict(pictures).labels, model.predict(pictures).labels)
