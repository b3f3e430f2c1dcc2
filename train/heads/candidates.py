"""Heads worth trying on any features, and the choice between them by what they say of rows they have not seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from calibrant.settings.heads import HeadConfig
from calibrant.shares import log_prior_ratio
from calibrant.train.heads.config import head_config
from calibrant.train.heads.cross_validation import OutOfFold, cross_validate, tempered_nll

ENOUGH_FOR_MLP = 50  # images of every class

_STANDARDISED = ("input.transform=standardise", "head.kind=logistic")
# Settings of `calibrant head`, by name. docs/fit.md says on what they were found.
CANDIDATES: dict[str, tuple[str, ...]] = {
    "discriminant": ("head.kind=lda", "head.between=0.15", "head.shrinkage=0.8", "input.power=0.5"),
    "discriminant, sharper": ("head.kind=lda", "head.between=0.15", "head.shrinkage=0.5", "input.power=0.5"),
    "logistic, weak penalty": (*_STANDARDISED, "head.l2=1e-3"),
    "logistic": (*_STANDARDISED, "head.l2=3e-2"),
    "logistic, strong penalty": (*_STANDARDISED, "head.l2=0.3"),
    "logistic on roots": (*_STANDARDISED, "head.l2=3e-2", "input.power=0.5"),
}  # fmt: skip
_MLP = ("head.kind=mlp", "head.dropout=0.2", "optimizer.lr=1e-3", "input.transform=standardise")


@dataclass(frozen=True)
class Judged:
    """A candidate and what it said out of fold."""

    name: str
    config: HeadConfig
    out: OutOfFold
    nll: NDArray[np.float64]  # of each judged row, through a temperature of other folds
    accuracy: float


def candidates(counts: NDArray[np.int64], *, seed: int) -> dict[str, HeadConfig]:
    """By name; a hidden layer is tried where every class has images enough."""
    found = dict(CANDIDATES)
    if counts.min() >= ENOUGH_FOR_MLP:
        found["hidden layer"] = _MLP
    return {name: head_config({}, [*settings, f"seed={seed}"], where=name) for name, settings in found.items()}


def judge(
    name: str,
    config: HeadConfig,
    features: NDArray[np.float32],
    labels: NDArray[np.int64],
    folds: NDArray[np.intp],
    judged: NDArray[np.bool_],
    classes: int,
    *,
    on_fold: Callable[[], None] = lambda: None,
) -> Judged:
    """One candidate, on the rows that are `judged`."""
    out = cross_validate(config, torch.from_numpy(features), labels, folds, classes, on_fold=on_fold)
    kept = judged[out.rows]
    out = OutOfFold(out.rows[kept], out.logits[kept])
    y = labels[out.rows]
    nll = tempered_nll(out.logits, y, folds[out.rows], shift=undone(config, labels, classes))
    return Judged(name, config, out, nll, float((out.logits.argmax(1) == y).mean()))


def best(found: list[Judged]) -> Judged:
    """The lowest NLL; the first of equals."""
    return min(found, key=lambda judged: float(judged.nll.mean()))


def undone(config: HeadConfig, labels: NDArray[np.int64], classes: int) -> NDArray[np.float64] | None:
    """What brings back the class shares that a head in closed form leaves out: its logits minus this follow them."""
    if config.head.kind not in ("lda", "ncm"):
        return None
    return -log_prior_ratio(np.bincount(labels, minlength=classes), smooth=1.0)
