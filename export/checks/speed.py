"""How many images a second a deployed file answers: measured at export, kept in its card, untouched by edits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrant.artifacts.model_card import ModelCard

KEY = "images_per_second"
KEYS = (KEY, f"{KEY}_at")
BATCH = 8


def kept(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What of a card's metrics is about speed, and so holds for any calibrator and prior."""
    return {key: metrics[key] for key in KEYS if key in metrics}


def entry(seconds: float, batch: int = BATCH) -> dict[str, Any]:
    """The two keys for a card's metrics, from the CPU seconds of one batch on one thread."""
    return {KEY: round(batch / seconds, 1), KEYS[1]: {"batch": batch, "threads": 1}}


def measure(path: str | Path, card: ModelCard, *, seconds: float = 0.2) -> dict[str, Any]:
    """CPU time of several calls on this machine (measure.time_together); nothing where knobs must be given."""
    import numpy as np

    from calibrant.export.checks.measure import time_together

    if card.knobs == "required":
        return {}
    height, width = card.preprocessing.size
    rng = np.random.default_rng(0)
    if card.input.layout == "NHWC":
        images = rng.integers(0, 256, (BATCH, height, width, 3), dtype=np.uint8)
    else:
        images = rng.normal(size=(BATCH, 3, height, width)).astype(np.float32)
    return entry(time_together([Path(path)], images, seconds=seconds)[0].large)
