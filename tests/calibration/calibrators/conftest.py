"""Real logits of a network, what the reference implementations made of them, and every method fitted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.calibration import METHODS, Calibrator, fit

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "calibration"
APART = ("auto", "bbq", "enir", "mixture", "by-group", "density-aware")  # not of these logits alone, or slow
PLAIN = tuple(m for m in METHODS if m not in APART)


def half(part: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(GOLDEN / f"resnet20_{part}.npz") as data:
        return data["logits"], data["labels"]


def golden() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / "resnet20.json").read_text())
    return found


@pytest.fixture(scope="package")
def fitted() -> dict[str, Calibrator]:
    logits, labels = half("cal")
    return {method: fit(method, logits, labels) for method in PLAIN}
