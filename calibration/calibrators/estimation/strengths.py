"""Affine maps near a temperature, averaged over the strength of their penalty.

Each strength s of `near.py` gives a map; the temperature alone is one more (s infinite). They are averaged with the
weights of `credence.py`, number by number:  A = sum_s w_s A_s, c likewise. The loss of an average of logits is at most
the average of the losses, since cross entropy is convex in them, so no single choice can go far wrong; and the average
is one map of the same kind. (A logarithmic pool: Genest and Zidek 1986. Berta et al. 2026 take s = 1.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.estimation.credence import (
    FEWER,
    STRENGTHS,
    credences,
    hopeless,
    prior_of,
)
from calibrant.calibration.calibrators.estimation.evidence import affordable, log_evidence
from calibrant.calibration.calibrators.estimation.near import Near, fit_near, identity
from calibrant.calibration.calibrators.estimation.newton import Vector
from calibrant.calibration.calibrators.estimation.pooling import FOLDS, folds_of, folds_worth, label_losses
from calibrant.calibration.calibrators.form import Matrix
from calibrant.calibration.inputs import Labels, Weights

_WORK = 5e6  # rows x numbers of the map up to which every fold is tried; beyond, one fold and fewer strengths
_LEAST_WEIGHT = 0.005


def fit_averaged(
    x: Matrix,
    labels: Labels,
    weights: Weights | None,
    offset: Vector | None,
    *,
    full: bool,
    bias: bool = True,
    strengths: Sequence[float] | None = None,
    seed: int = 0,
) -> Near:
    """The average, with the table of strengths in the notes; `strength` is that of the largest weight."""
    n, c = x.shape
    heavy = n * c * (c if full else 20) > _WORK
    every = tried = (FEWER if heavy else STRENGTHS) if strengths is None else tuple(strengths)
    names = ["none beyond the temperature", *(f"{s:g}" for s in tried)]
    w = np.ones(n) if weights is None else weights * (n / weights.sum())
    if n < 2 * FOLDS:
        return Near(np.ones(c), np.zeros(c), np.inf, {"strength": names[0]})
    masks = folds_of(n, FOLDS, seed, folds_worth(n, heavy=heavy))
    totals, rows = _held_out(x, labels, w, offset, tried, masks, full, bias)
    tried, names = tried[: len(totals) - 1], names[: len(totals)]
    effective = n if weights is None else float(weights.sum() ** 2 / np.dot(weights, weights))
    gains = (totals[0] - totals) * effective / max(rows, 1.0)
    prior = prior_of(every)[: len(totals)]
    maps = [identity(c)]
    if not affordable(c, full=full):
        share = credences(prior, gains, round(effective))
        for j, s in enumerate(tried):  # a map that hardly counts is not fitted
            counts = share[j + 1] >= _LEAST_WEIGHT
            maps.append(fit_near(x, labels, weights, offset, s, full=full, bias=bias) if counts else maps[0])
        share = np.where(share >= _LEAST_WEIGHT, share, 0.0)
    else:
        for j, s in enumerate(tried):
            start = maps[-1] if j else None
            maps.append(fit_near(x, labels, weights, offset, s, full=full, bias=bias, start=start))
        evidence = [log_evidence(m, x, labels, weights, offset, full=full, bias=bias) for m in maps[1:]]
        share = credences(prior, gains, round(effective), np.append(0.0, evidence))
    share = share / share.sum()
    top = int(np.argmax(share))
    notes: dict[str, Any] = {
        "strength": names[top],
        "shares": dict(zip(names, share.tolist(), strict=True)),
        "cross_validated_nll": dict(zip(names, (totals / max(rows, 1.0)).tolist(), strict=True)),
        "converged": all(bool(m.notes.get("converged", True)) for m in maps),
    }
    plain = full and any(m.a.ndim == 2 for m in maps)
    a = sum(
        (s * (np.diag(m.a) if plain and m.a.ndim == 1 else m.a) for s, m in zip(share, maps, strict=True)), start=0.0
    )
    shift = sum((s * m.c for s, m in zip(share, maps, strict=True)), start=np.zeros(c))
    return Near(np.asarray(a), shift, [np.inf, *tried][top], notes)


def _held_out(
    x: Matrix,
    labels: Labels,
    w: Vector,
    offset: Vector | None,
    strengths: Sequence[float],
    masks: Sequence[NDArray[np.bool_]],
    full: bool,
    bias: bool,
) -> tuple[Vector, float]:
    """Losses of held-out rows, summed, without a map and under each strength; and their weight.

    From strong to weak, until a strength is hopelessly behind: what comes after has no entry.
    """
    masks = [test for test in masks if w[~test].sum() and w[test].sum()]
    rows = float(sum(w[test].sum() for test in masks))
    maps = [identity(x.shape[1]) for _ in masks]
    totals = [sum(_loss(m, x[test], labels[test], w[test], offset) for m, test in zip(maps, masks, strict=True))]
    gains, small = [0.0], affordable(x.shape[1], full=full)
    for j, s in enumerate(strengths):
        if hopeless(gains):
            break
        for k, test in enumerate(masks):
            start = maps[k] if j and small else None  # a large map ends before its optimum, from the same start always
            maps[k] = fit_near(
                x[~test], labels[~test], w[~test], offset, s, full=full, bias=bias, start=start, tolerance=1e-5
            )
        totals.append(sum(_loss(m, x[t], labels[t], w[t], offset) for m, t in zip(maps, masks, strict=True)))
        gains.append((totals[0] - totals[-1]) * float(w.sum()) / max(rows, 1.0))
    return np.array(totals), rows


def _loss(found: Near, x: Matrix, labels: Labels, w: Vector, offset: Vector | None) -> float:
    return float(np.dot(w, label_losses(found(x) + (0.0 if offset is None else offset), labels)))
