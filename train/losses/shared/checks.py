"""Refusals of options out of range and of rows that are not numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from calibrant.errors import ConfigError, DataError


def at_least(value: int, low: int, name: str) -> int:
    """value, refused below `low`."""
    if value < low:
        raise ConfigError(f"{name} is {value}, but must be at least {low}")
    return value


def in_range(value: float, low: float, high: float, name: str) -> float:
    """value, refused unless low <= value <= high."""
    if not low <= value <= high:
        raise ConfigError(f"{name} is {value}, but must lie in [{low}, {high}]")
    return float(value)


def positive(value: float, name: str) -> float:
    """value, refused unless above 0."""
    if not value > 0:
        raise ConfigError(f"{name} is {value}, but must be positive")
    return float(value)


def refuse_non_finite(z: Tensor, features: Tensor | None) -> None:
    """For debugging: names the rows of the batch."""
    for name, t in (("logits", z), ("features", features)):
        if t is not None and not bool(torch.isfinite(t).all()):
            bad = (~torch.isfinite(t).all(1)).nonzero()[:5, 0].tolist()
            raise DataError(f"{name} are not finite in rows {bad} of the batch", where="loss in debug mode")
