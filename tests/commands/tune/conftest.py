"""A small deployed file and pictures with labels, built with the onnx package; nothing here needs torch."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from calibrant.calibration.compare import Difference
from calibrant.commands.tune.candidates import Candidate


@pytest.fixture(scope="session")
def tiny() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tune_tiny", Path(__file__).parents[2] / "serve" / "tiny.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory, tiny: ModuleType) -> Path:
    """Sixty of one colour each, labelled as a file of tiny.py answers, every fifth as another class."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    pixels = np.broadcast_to(rng.integers(0, 256, (60, 1, 1, 3)), (60, 16, 16, 3)).astype(np.uint8)
    best = tiny.expected(pixels).argmax(axis=1)
    for n, (picture, label) in enumerate(zip(pixels, best, strict=True)):
        place = folder / tiny.CLASSES[(label + (n % 5 == 0)) % 4]
        place.mkdir(exist_ok=True)
        Image.fromarray(picture).resize((20, 20)).save(place / f"{n}.png")
    return folder


def difference(value: float, half: float) -> Difference:
    return Difference(0.5, 0.5 + value, value, value - half, value + half)


def candidate(name: str, *, accuracy: float = 0.8, refused: str | None = None) -> Candidate:
    changes = {} if name == "fp32" else {"accuracy": difference(accuracy - 0.8, 0.01), "ece": difference(0.0, 0.01)}
    return Candidate(name, Path(__file__), (accuracy, accuracy - 0.02, accuracy + 0.02), changes, 0.03, refused)
