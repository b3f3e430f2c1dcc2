"""A calibrator that reads features, in deployed files: parity, with a prior, after a network that bends its logits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant.artifacts.model_card import ModelCard, Prior
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration import Calibrator, fit
from calibrant.calibration.softmax import softmax
from calibrant.errors import ModelError
from calibrant.export import edit
from calibrant.export.checks.parity import session
from calibrant.export.graph.fold import tail_steps
from calibrant.export.graph.tail import Tail, standalone

from ..conftest import CLASSES, PRIOR, pixels

C = len(CLASSES)


class Beside(nn.Module):
    """The tiny network with its features beside its logits: as they are, or made no matrix product of them."""

    def __init__(self, tiny: nn.Module, *, bent: bool = False, aside: bool = False) -> None:
        super().__init__()
        self.tiny, self.bent, self.aside = tiny, bent, aside

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features: Tensor = self.tiny.features(x)  # type: ignore[operator]
        logits: Tensor = self.tiny.head(features)  # type: ignore[operator]
        return 3 * torch.tanh(logits) if self.bent else logits, features.sqrt() if self.aside else features


def fitted(z: NDArray[Any], x: NDArray[Any], *, slope: float | None = None) -> Calibrator:
    y = np.random.default_rng(0).integers(0, z.shape[1], len(z))
    y = np.where(np.arange(len(z)) % 3 == 0, y, z.argmax(axis=1))
    found = fit("density-aware", z, y, features=x)
    steep = {**found.parameters, "slope": slope or 4.0}  # whatever the made labels say
    return Calibrator("density-aware", z.shape[1], steep, found.fit, found.fitted_on)


@pytest.mark.parametrize("features", [16, 1280])
def test_the_graph_says_what_the_numbers_say_on_centres_too(features: int) -> None:
    rng = np.random.default_rng(1)
    x = np.maximum(rng.normal(size=(300, features)), 0).astype(np.float32)
    weight = rng.normal(size=(C, features)) / np.sqrt(features) * 3
    calibrator = fitted(x.astype(np.float64) @ weight.T, x)
    tail = Tail(C, "features", weight, np.zeros(C), tail_steps(C, calibrator=calibrator), feature_dim=features)
    fresh = np.concatenate([x, 30 * x[:50], rng.normal(size=(50, features)), np.zeros((1, features))]).astype(
        np.float32
    )
    got = session(standalone(tail)).run(["probabilities"], {"features": fresh})[0]
    right = calibrator.probabilities(fresh.astype(np.float64) @ weight.T, fresh)
    np.testing.assert_allclose(got, right, atol=1e-5)
    plain = softmax(fresh.astype(np.float64) @ weight.T / calibrator.parameters["temperature"])
    assert np.abs(right - plain).max() > 0.05  # so that it is more than a temperature which agrees


def test_a_deployed_file_takes_it_and_a_prior_and_gives_it_back(deployed: Path, tmp_path: Path) -> None:
    images, fresh = pixels(64, seed=1), pixels(32, seed=8)
    z, x = session(deployed).run(["logits", "features"], {"images": images})
    calibrator, path = fitted(z, x), tmp_path / "m.onnx"
    card = edit.recalibrate(deployed, calibrator, out=path)
    edit.adjust(path, 1.0)
    raw, seen = session(deployed).run(["logits", "features"], {"images": fresh})
    shift = Prior(PRIOR, None, 0.0, 1.0).shift()
    got = session(path).run(["probabilities"], {"images": fresh})[0]
    np.testing.assert_allclose(got, softmax(calibrator.logits(raw, seen) - shift), atol=1e-5)
    assert card.verify is not None
    assert card.verify["edit"]["max_diff"] <= 1e-5
    edit.recalibrate(path, None)
    edit.adjust(path, 0.0)
    np.testing.assert_allclose(session(path).run(["logits"], {"images": fresh})[0], raw, atol=1e-5)


@pytest.mark.parametrize("bent", [False, True])
def test_exporting_with_it_agrees_with_torch(
    exported: Callable[..., tuple[Path, ModelCard]], deployed: Path, tiny: nn.Module, bent: bool
) -> None:
    z, x = session(deployed).run(["logits", "features"], {"images": pixels(64, seed=1)})
    path, card = exported(Beside(tiny, bent=bent), calibrator=fitted(z, x), adjust=1.0, images=pixels(64))
    assert card.verify is not None
    assert card.verify["passed"]
    assert card.head is not None
    assert card.head.kind == ("logits" if bent else "gemm")
    assert "features" in {name for node in OnnxFile.open(path).nodes for name in node.outputs}


def test_a_graph_that_has_lost_its_features_is_refused(
    exported: Callable[..., tuple[Path, ModelCard]], deployed: Path, tiny: nn.Module
) -> None:
    z, x = session(deployed).run(["logits", "features"], {"images": pixels(64, seed=1)})
    path, _ = exported(Beside(tiny, bent=True, aside=True), comparison=None)
    with pytest.raises(ModelError, match="its graph holds no features"):
        edit.recalibrate(path, fitted(z, x))


def test_features_of_another_width_are_refused(deployed: Path, tmp_path: Path) -> None:
    z, x = session(deployed).run(["logits", "features"], {"images": pixels(64, seed=1)})
    with pytest.raises(ModelError, match="reads 9 features a row, this model gives 16"):
        edit.recalibrate(deployed, fitted(z, x[:, :9]), out=tmp_path / "m.onnx")


def test_a_network_that_gives_logits_alone_is_refused(
    exported: Callable[..., tuple[Path, ModelCard]], deployed: Path
) -> None:
    z, x = session(deployed).run(["logits", "features"], {"images": pixels(64, seed=1)})
    with pytest.raises(ModelError, match=r"density-aware\) reads features, and the network gives none"):
        exported(calibrator=fitted(z, x))
