"""Files of the exporter itself, in every mode of knobs, against the one formula."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.calibration import fit
from calibrant.calibration.softmax import softmax
from calibrant.images.preprocessing import Preprocessing
from calibrant.serve import load

TRAIN = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
TARGET = np.array([0.1, 0.1, 0.2, 0.3, 0.3])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["temperature", "vector", "isotonic"])
@pytest.mark.parametrize("knobs", ["baked", "runtime", "required"])
def test_an_exported_file_serves_the_formula_and_every_other_prior(tmp_path: Path, method: str, knobs: str) -> None:
    torch = pytest.importorskip("torch")
    from calibrant.export import export_onnx

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, 2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 5),
    ).eval()
    preprocessing = Preprocessing((32, 32), 32)
    pixels = rng.integers(0, 255, (7, 32, 32, 3)).astype(np.uint8)
    with torch.no_grad():
        network[-1].weight *= 20
        z = network(torch.from_numpy(preprocessing.normalise(pixels))).numpy().astype(np.float64)
    logits = rng.normal(0, 3, (400, 5))
    labels = (rng.random((400, 1)) > softmax(logits / 2).cumsum(axis=1)).sum(axis=1).clip(0, 4)
    calibrator = fit(method, logits, labels)
    path = tmp_path / "model.onnx"
    export_onnx(
        network, path, class_names=list("abcde"), preprocessing=preprocessing, calibrator=calibrator, train_prior=TRAIN,
        adjust=1.0, knobs=knobs,  # type: ignore[arg-type]
    )  # fmt: skip
    classifier, u = load(path, threads=1), calibrator.logits(z)
    np.testing.assert_allclose(classifier.predict(pixels).probabilities, softmax(u - np.log(TRAIN * 5)), atol=1e-5)
    fitted = float(calibrator.parameters.get("temperature", 1.0))
    other = classifier.predict(pixels, target_prior=TARGET.tolist(), temperature=0.7)
    np.testing.assert_allclose(other.probabilities, softmax(u * fitted / 0.7 - np.log(TRAIN / TARGET)), atol=1e-5)
    raw = classifier.formula.raw(classifier.predict(pixels).logits)
    assert (raw is None) == (method == "isotonic")
    if raw is not None:
        np.testing.assert_allclose(raw, z, atol=1e-4)
