"""Every row judged by a head that never saw it: K heads, each trained without one fold.

Small sets lose nothing to a validation split this way: the head that is kept is trained on all rows, and its
temperature comes from the logits of the K others, which claim what it claims (docs/fit.md has the figures).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.calibration.calibrators.temperature import minimise_nll
from calibrant.calibration.softmax import log_softmax
from calibrant.errors import DataError
from calibrant.settings.heads import HeadConfig
from calibrant.train.heads.training.ensemble import train_heads

Logits = NDArray[np.float32]


@dataclass(frozen=True)
class OutOfFold:
    """Rows that were judged, in their order, and what heads said that had not seen them."""

    rows: NDArray[np.intp]
    logits: Logits


def cross_validate(
    config: HeadConfig,
    features: Tensor,
    labels: NDArray[np.int64],
    folds: NDArray[np.intp],
    classes: int,
    *,
    on_fold: Callable[[], None] = lambda: None,
) -> OutOfFold:
    """Heads of `config`, one for each fold (0, 1, ...); rows of a negative fold train always and are never judged."""
    numbers = sorted(set(folds[folds >= 0].tolist()))
    if not numbers:
        raise DataError("no row can be judged: every class has one image only", fix="add images")
    y = torch.from_numpy(labels).to(features.device)
    logits = np.zeros((len(labels), classes), np.float32)
    for k in numbers:
        inside = torch.from_numpy(np.flatnonzero(folds != k)).to(features.device)
        outside = np.flatnonzero(folds == k)
        x_out = features[torch.from_numpy(outside).to(features.device)]
        trained = train_heads(
            config, features[inside], y[inside], classes, validation=(x_out, y[torch.from_numpy(outside)])
        )
        logits[outside] = trained.claimed(trained.logits(x_out)).float().cpu().numpy()
        on_fold()
    rows = np.flatnonzero(folds >= 0)
    return OutOfFold(rows, logits[rows])


def tempered_nll(
    logits: NDArray[np.floating[Any]],
    labels: NDArray[np.int64],
    folds: NDArray[np.intp],
    *,
    shift: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """(N,) -log p of the label, p = softmax(z / T - shift), T fitted on the rows of other folds.

    With one fold the rows are halved, so that still no row is judged by a temperature that has seen it.
    """
    parts = folds if len(np.unique(folds)) > 1 else np.arange(len(labels)) % 2
    out = np.empty(len(labels))
    for k in np.unique(parts):
        inside, outside = parts != k, parts == k
        z, offset = logits[inside].astype(np.float64), None if shift is None else -shift
        temperature = minimise_nll(z, labels[inside], offset=offset).temperature
        u = logits[outside].astype(np.float64) / temperature
        log_p = log_softmax(u if shift is None else u - shift)
        out[outside] = -log_p[np.arange(len(log_p)), labels[outside]]
    return out


def difference(first: NDArray[np.float64], second: NDArray[np.float64]) -> tuple[float, float]:
    """Mean of first - second over the same rows, and the standard error of that mean."""
    gap = first - second
    return float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(len(gap))) if len(gap) > 1 else float("inf")
