"""Predictions to be written and read."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pytest

from calibrant.artifacts.predictions import Predictions, Source


class Some(Protocol):
    def __call__(self, n: int = 5, classes: int = 3, *, seed: int = 0, features: bool = False) -> Predictions: ...


@pytest.fixture
def some() -> Some:
    return _some


def _some(n: int = 5, classes: int = 3, *, seed: int = 0, features: bool = False) -> Predictions:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    labels[0] = -1
    source = Source(
        tuple(f"k{i}" for i in range(classes)), tuple([1 / classes] * classes), 1.0, (0.5,) * classes, {"name": "net"}
    )
    return Predictions(
        tuple(f"row/{i}" for i in range(n)),
        labels,
        rng.normal(size=(n, classes)).astype(np.float32),
        source,
        rng.normal(size=(n, 4)).astype(np.float32) if features else None,
        ("val",) * n,
    )
