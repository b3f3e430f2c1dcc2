"""Where a run stands, what an epoch came to, and which epoch is the best."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from calibrant.calibration.metrics.table import metric


@dataclass(frozen=True)
class Epoch:
    """What one epoch came to."""

    epoch: int  # from 1
    epochs: int
    train_loss: float
    val: dict[str, float]
    best: bool
    seconds: float


@dataclass
class Position:
    """Where the run stands; with the tensors, all that a checkpoint holds."""

    epoch: int = 0
    step: int = 0  # micro-batches done in this epoch
    update: int = 0
    loss_sum: float = 0.0
    loss_rows: int = 0
    largest_norm: float = 0.0  # of this epoch's gradients, before they are clipped
    best: float | None = None
    best_tie: float | None = None  # NLL of the best epoch: decides between equal accuracies
    best_epoch: int = 0  # 0 beside a best: the head on the frozen network
    stale: int = 0  # epochs since the best one
    schedule: dict[str, Any] = field(default_factory=dict)  # state of a plateau
    top: list[list[float]] = field(default_factory=list)  # [epoch, metric, NLL] of the epochs whose models are kept


def is_better(val: dict[str, float], best: float | None, best_tie: float | None, *, by: str) -> bool:
    """An epoch beats the best one so far by the metric `by`, or equals it with a lower NLL."""
    if best is None or best_tie is None:
        return True
    gain = (-1.0 if metric(by).better == "lower" else 1.0) * (val[by] - best)
    return gain > 0 or (gain == 0 and val["nll"] < best_tie)
