"""A small network, exported once, from which the tests build what they need in milliseconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant.artifacts.model_card import ModelCard, Prior
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration import Calibrator
from calibrant.export import About, Comparison, Interface, Trained, export_onnx
from calibrant.export.graph.assemble import build_tail, raw_head, write_deployed
from calibrant.images.preprocessing import Preprocessing

CLASSES = ("ash", "birch", "cedar", "elm", "fir")
PREPROCESSING = Preprocessing((16, 16), 16)
PRIOR = (0.5, 0.2, 0.15, 0.1, 0.05)
RECORDS = {"trained": Trained, "interface": Interface, "about": About, "comparison": Comparison}


class TinyNet(nn.Module):
    """Two convolutions, pooling and a linear head whose logits have a spread of about 3."""

    def __init__(self, classes: int = len(CLASSES), *, bias: bool = True) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.body = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.head = nn.Linear(16, classes, bias=bias)

    def features(self, x: Tensor) -> Tensor:
        return self.body(self.stem(x).relu()).relu().mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def pixels(rows: int, seed: int = 0, size: tuple[int, int] = (16, 16)) -> NDArray[np.uint8]:
    """Images that differ by more than noise: each has its own brightness per channel."""
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 256, (rows, 1, 1, 3))
    return np.clip(base + rng.integers(-40, 41, (rows, *size, 3)), 0, 255).astype(np.uint8)


def spread(network: nn.Module, *, std: float = 3.0, size: tuple[int, int] = (16, 16)) -> nn.Module:
    """Scales the last linear layer so that logits vary over images by `std`: untrained ones hardly do."""
    network.eval()
    heads = [m for m in network.modules() if isinstance(m, nn.Linear)]
    x = torch.from_numpy(PREPROCESSING.normalise(pixels(16, size=size)))
    with torch.no_grad():
        z = network(x)
        heads[-1].weight *= std / z.std(0).mean()
    return network


@pytest.fixture(scope="session")
def tiny() -> nn.Module:
    torch.manual_seed(0)
    return spread(TinyNet())


@pytest.fixture(scope="session")
def deployed(tiny: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny network as a deployed file: training prior known, nothing folded, features put out. Do not change it."""
    path = tmp_path_factory.mktemp("deployed") / "tiny.onnx"
    export_onnx(
        tiny, path, class_names=CLASSES, preprocessing=PREPROCESSING, train_prior=PRIOR,
        interface=Interface(outputs=("probabilities", "logits", "features")),
    )  # fmt: skip
    return path


@pytest.fixture
def exported(tiny: nn.Module, tmp_path: Path) -> Callable[..., tuple[Path, ModelCard]]:
    """Exports the tiny network with the options given, each put into the record that has it."""

    def make(network: nn.Module | None = None, **options: object) -> tuple[Path, ModelCard]:
        path = tmp_path / "model.onnx"
        settings = {"class_names": CLASSES, "preprocessing": PREPROCESSING, "train_prior": PRIOR, **options}
        for name, record in RECORDS.items():
            own = {f.name: settings.pop(f.name) for f in fields(record) if f.name in settings}
            settings |= {name: record(**own)} if own else {}
        return path, export_onnx(network or tiny, path, **settings)  # type: ignore[arg-type]

    return make


@pytest.fixture
def variant(deployed: Path, tmp_path: Path) -> Callable[..., tuple[Path, ModelCard]]:
    """The tiny file with another tail, by the code that export and every edit run; takes a second less than tracing."""

    def make(**options: Any) -> tuple[Path, ModelCard]:
        file = OnnxFile.open(deployed)
        card, path = file.card(), tmp_path / "variant.onnx"
        head = raw_head(file, card)
        assert head is not None
        if isinstance(options.get("calibrator"), Calibrator):
            options["calibrator"] = json.loads(options["calibrator"].to_json())
        absorbed, target = options.pop("absorbed", 0.0), options.pop("target_prior", None)
        applied = options.pop("adjust", absorbed) - absorbed
        if "prior" not in options:
            options["prior"] = Prior(PRIOR, None if target is None else tuple(target), absorbed, applied)
        if options.get("ood") and "outputs" not in options:
            options["outputs"] = ("probabilities", "logits", "ood_score")
        card = replace(card, **options)
        return path, write_deployed(file, path, card, build_tail(card, head[0], head[1], head[0].shape[1]))

    return make
