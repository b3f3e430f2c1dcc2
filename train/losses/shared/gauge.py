"""What is done to logits before class temperatures divide them, where a common shift of a row would not be the same."""

from __future__ import annotations

from torch import Tensor

from calibrant.artifacts.card_checks import GAUGES
from calibrant.errors import ModelError, did_you_mean


def check_gauge(gauge: str) -> str:
    if gauge not in GAUGES:
        raise ModelError(f'unknown gauge "{gauge}"', fix=did_you_mean(gauge, GAUGES))
    return gauge


def gauged(z: Tensor, gauge: str) -> Tensor:
    """z (N, C, ...) less its mean over the classes, less its maximum, as log probabilities, or as it is."""
    check_gauge(gauge)
    if gauge == "mean":
        return z - z.mean(1, keepdim=True)
    if gauge == "max":
        return z - z.amax(1, keepdim=True)
    return z.log_softmax(1) if gauge == "logsoftmax" else z
