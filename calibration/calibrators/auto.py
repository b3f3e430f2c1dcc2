"""Which method: cross-validated NLL of each, and the simplest that is not clearly worse than the best.

Every row is predicted by maps fitted on other rows. For each method the mean loss and its paired difference to the best
method get 95 % intervals over rows; a method whose interval of the difference reaches 0 cannot be told from the best.
Among those the simplest is taken, as it carries over best to data that are a little different.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.base import Calibrator
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.calibration.intervals.means import mean_interval
from calibrant.calibration.softmax import log_softmax
from calibrant.errors import CalibrantError, ConfigError

# From simple to complex; what netcal alone offers is left out, as its two methods measured far behind.
CANDIDATES = (
    "temperature", "ensemble-temperature", "classwise-temperature", "vector", "beta", "structured", "dirichlet",
    "isotonic",
)  # fmt: skip

Fit = Callable[..., Calibrator]


def choose(
    fit: Fit,
    logits: Floats,
    labels: Labels,
    weights: Weights | None,
    *,
    candidates: tuple[str, ...] = CANDIDATES,
    folds: int = 5,
    seed: int = 0,
    **shared: Any,
) -> Calibrator:
    """`fit(method, logits, labels, weights=..., **shared)` as in the package's front door."""
    n = len(labels)
    if n < 2 * folds:
        raise ConfigError(f"auto needs at least {2 * folds} rows, here are {n}", fix="use --method temperature")
    fold = np.random.default_rng(seed).permutation(n) % folds
    losses: dict[str, NDArray[np.float64]] = {}
    failed: dict[str, str] = {}
    for method in candidates:
        try:
            losses[method] = _losses(fit, method, logits, labels, weights, fold, folds, shared)
        except CalibrantError as error:
            failed[method] = error.what
    if not losses:
        raise ConfigError("no candidate could be fitted: " + "; ".join(f"{k}: {v}" for k, v in failed.items()))
    mean = {method: _mean(loss, weights) for method, loss in losses.items()}
    best = min(mean, key=lambda m: mean[m])
    table, chosen = {}, best
    for method, loss in losses.items():
        difference = loss - losses[best]
        low, high = _interval(difference, weights)
        nll_low, nll_high = _interval(loss, weights)
        table[method] = {
            "nll": mean[method], "low": nll_low, "high": nll_high, "minus_best": mean[method] - mean[best],
            "minus_best_low": low, "minus_best_high": high,
        }  # fmt: skip
    for method in losses:  # in order of complexity
        low = table[method]["minus_best_low"]
        if method == best or (low is not None and low <= 0):
            chosen = method
            break
    return_ = fit(chosen, logits, labels, weights=weights, **shared)
    notes = {**return_.fit, "auto": {
        "chosen": chosen, "best": best, "folds": folds, "why": _why(chosen, best, table), "methods": table,
        "failed": failed,
    }}  # fmt: skip
    return Calibrator(return_.method, return_.classes, return_.parameters, notes, return_.fitted_on)


def _losses(
    fit: Fit,
    method: str,
    logits: Floats,
    labels: Labels,
    weights: Weights | None,
    fold: NDArray[np.int64],
    folds: int,
    shared: dict[str, Any],
) -> NDArray[np.float64]:
    out = np.empty(len(labels))
    for f in range(folds):
        test, train = fold == f, fold != f
        w = None if weights is None else weights[train]
        calibrator = fit(method, logits[train], labels[train], weights=w, **shared)
        zeta = calibrator.logits(logits[test])
        if shared.get("strength"):
            zeta = zeta - shared["strength"] * np.asarray(shared["log_prior_ratio"], np.float64)
        out[test] = -log_softmax(zeta)[np.arange(int(test.sum())), labels[test]]
    return out


def _mean(values: NDArray[np.float64], weights: Weights | None) -> float:
    return float(values.mean() if weights is None else np.dot(weights, values) / weights.sum())


def _interval(values: NDArray[np.float64], weights: Weights | None) -> tuple[float | None, float | None]:
    if weights is None:
        return mean_interval(float(values.mean()), float(values.var(ddof=1)), len(values))
    mean = _mean(values, weights)
    effective = float(weights.sum() ** 2 / np.dot(weights, weights))
    variance = float((weights**2) @ (values - mean) ** 2) / float(weights.sum()) ** 2 * effective
    return mean_interval(mean, variance, effective)


def _why(chosen: str, best: str, table: dict[str, dict[str, float | None]]) -> str:
    row = table[chosen]
    if chosen == best:
        return f"lowest cross-validated NLL ({row['nll']:.4f}), and every simpler method is clearly worse"
    return (
        f"simpler than {best}, which has the lowest cross-validated NLL ({table[best]['nll']:.4f}); its own "
        f"({row['nll']:.4f}) cannot be told from it: difference {row['minus_best_low']:+.4f} to "
        f"{row['minus_best_high']:+.4f}"
    )
