"""What was asked of a fit, what the presets mean, and what the time allows."""

from __future__ import annotations

import math
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from calibrant.errors import ConfigError


@dataclass(frozen=True)
class Preset:
    """`updates`: times a hundred updates or four epochs of fine-tuning; 0 leaves the backbone frozen."""

    updates: int
    minutes: float  # where --time says nothing


PRESETS = {"fast": Preset(0, 60), "balanced": Preset(1, 15), "best": Preset(3, 120)}
BATCH = 32
LEAST_UPDATES, LEAST_EPOCHS = 100, 4  # of the preset balanced
TOO_FEW = 48  # updates that are not worth it: fewer ended below the head (docs/fit.md)
LEAST_JUDGES = 8  # rows that can tell whether fine-tuning won: a standard error of fewer is chance
STEP_OVER_FORWARD = 4.0  # a training step against a forward pass of as many images
EXPORT_SECONDS = 20.0
SAFETY = 0.85  # of the time left that a plan uses


@dataclass(frozen=True)
class Wanted:
    """The command line; what is stored in fit.json, so that the same is gone on with."""

    images: Path
    preset: str = "balanced"
    minutes: float | None = None
    model: str | None = None
    weights: Path | None = None
    image_size: int | None = None
    target_prior: str | None = None
    groups: str | None = None
    seed: int = 1
    device: str = "auto"

    def stored(self) -> dict[str, Any]:
        block = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items()}
        return block | {"images": str(self.images.resolve())}


class Clock:
    """Time since the start and until the end that was asked for."""

    def __init__(self, minutes: float | None, preset: str) -> None:
        self.start = time.monotonic()
        self.budget = 60 * (PRESETS[preset].minutes if minutes is None else minutes)

    def left(self) -> float:
        return self.budget - (time.monotonic() - self.start)

    def passed(self) -> float:
        return time.monotonic() - self.start


def minutes_of(text: str) -> float:
    """10m, 2h, 90s, or a number of minutes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|sec|m|min|h)?\s*", text)
    value = float(found[1]) * {"s": 1 / 60, "sec": 1 / 60, "h": 60.0}.get(found[2] or "m", 1.0) if found else 0.0
    if value <= 0:
        raise ConfigError(f'"{text}" is not a time', where="--time", fix="write 90s, 10m or 2h")
    return value


def epochs_for(preset: str, images: int) -> int:
    """Of fine-tuning, where time is no matter."""
    updates = max(1, images // BATCH)
    return PRESETS[preset].updates * max(LEAST_EPOCHS, math.ceil(LEAST_UPDATES / updates))


def affordable(preset: str, images: int, seconds_an_image: float, left: float) -> int:
    """Epochs that the time left allows, at most what the preset wants; 0 where it is not worth starting."""
    wanted = epochs_for(preset, images)
    epoch = max(1e-9, images * seconds_an_image)
    possible = min(wanted, int((SAFETY * left - EXPORT_SECONDS) / epoch))
    return possible if possible * max(1, images // BATCH) >= min(TOO_FEW, wanted * max(1, images // BATCH)) else 0


def size_within(size: int, images: int, seconds_an_image: float, left: float) -> int:
    """The image size, lessened in steps of 32 px until the features take no more than half of the time left."""
    smallest = min(size, 96)
    while size - 32 >= smallest and images * seconds_an_image > 0.5 * left:
        seconds_an_image *= ((size - 32) / size) ** 2
        size -= 32
    return size
