"""A file whose calibrator reads features, served: the answers are those of the numbers, whatever the knobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.calibration import Calibrator, fit
from calibrant.calibration.softmax import softmax
from calibrant.images.preprocessing import Preprocessing
from calibrant.serve import load

TRAIN, TARGET = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])


def test_a_served_file_measures_how_far_a_picture_lies(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from calibrant.export import export_onnx

    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = torch.nn.Conv2d(3, 12, 5, 4), torch.nn.Linear(12, 3)

        def forward(self, x):  # type: ignore[no-untyped-def]
            features = self.stem(x).relu().mean((2, 3))
            return self.head(features), features

    torch.manual_seed(0)
    network, preprocessing = Network().eval(), Preprocessing((16, 16), 16)
    rng = np.random.default_rng(0)
    own, fresh = (
        np.clip(rng.integers(0, 256, (n, 1, 1, 3)) + rng.integers(-60, 60, (n, 16, 16, 3)), 0, 255).astype(np.uint8)
        for n in (200, 9)
    )
    with torch.no_grad():
        network.head.weight *= 12
        (z, x), (raw, seen) = (
            [t.numpy() for t in network(torch.from_numpy(preprocessing.normalise(p)))] for p in (own, fresh)
        )
    fitted = fit("density-aware", z, z.argmax(axis=1), features=x)
    calibrator = Calibrator("density-aware", 3, {**fitted.parameters, "slope": 5.0}, fitted.fit, fitted.fitted_on)
    path = tmp_path / "m.onnx"
    export_onnx(
        network, path, class_names="abc", preprocessing=preprocessing, calibrator=calibrator, train_prior=TRAIN,
        adjust=1.0,
    )  # fmt: skip
    classifier, u = load(path, threads=1), calibrator.logits(raw, seen)
    answered = classifier.predict(fresh)
    np.testing.assert_allclose(answered.probabilities, softmax(u - np.log(TRAIN * 3)), atol=1e-5)
    assert np.ptp(u / raw, axis=0).max() > 0.05  # each picture at a temperature of its own
    other = classifier.predict(fresh, target_prior=TARGET.tolist())
    np.testing.assert_allclose(other.probabilities, softmax(u - np.log(TRAIN / TARGET)), atol=1e-5)
    assert classifier.formula.raw(answered.logits) is None
