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

from calibrant.calibration.calibrators.estimation.credence import FEWER, STRENGTHS, credences, prior_of
from calibrant.calibration.calibrators.estimation.evidence import affordable, log_evidence
from calibrant.calibration.calibrators.estimation.near import Near, fit_near, identity
from calibrant.calibration.calibrators.estimation.newton import Vector
from calibrant.calibration.calibrators.estimation.pooling import FOLDS, folds_of, label_losses
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
    tried = (FEWER if heavy else STRENGTHS) if strengths is None else tuple(strengths)
    names = ["none beyond the temperature", *(f"{s:g}" for s in tried)]
    w = np.ones(n) if weights is None else weights * (n / weights.sum())
    if n < 2 * FOLDS:
        return Near(np.ones(c), np.zeros(c), np.inf, {"strength": names[0]})
    totals, rows = np.zeros(len(tried) + 1), 0.0
    for test in folds_of(n, FOLDS, seed, 1 if heavy else None):
        if not w[~test].sum() or not w[test].sum():
            continue
        found, rows = identity(c), rows + float(w[test].sum())
        totals[0] += _loss(found, x[test], labels[test], w[test], offset)
        for j, s in enumerate(tried):
            start = found if j else None
            found = fit_near(
                x[~test], labels[~test], w[~test], offset, s, full=full, bias=bias, start=start, tolerance=1e-5
            )
            totals[j + 1] += _loss(found, x[test], labels[test], w[test], offset)
    effective = n if weights is None else float(weights.sum() ** 2 / np.dot(weights, weights))
    gains = (totals[0] - totals) * effective / max(rows, 1.0)
    prior = prior_of(tried)
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


def _loss(found: Near, x: Matrix, labels: Labels, w: Vector, offset: Vector | None) -> float:
    return float(np.dot(w, label_losses(found(x) + (0.0 if offset is None else offset), labels)))
