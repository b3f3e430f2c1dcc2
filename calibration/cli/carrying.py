"""How maps fitted on one set of rows carry over to others: each method's NLL there, beside the temperature's.

Richer maps learn what is particular to their rows, so they may lose where the pictures differ. Own rows are judged by
maps fitted on other folds, other sets by the map of all own rows. Methods that read features take part where all sets
have them. `most_robust` takes the method whose largest loss
over the temperature, on whichever set, is smallest: the temperature itself unless another wins everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.feedback_logits import refuse_cut
from calibrant.artifacts.foreign.read import Asked
from calibrant.artifacts.predictions import PredictionsFile
from calibrant.calibration.calibrators import fit
from calibrant.calibration.calibrators.estimation.pooling import label_losses
from calibrant.calibration.calibrators.table import FORMS
from calibrant.calibration.cross_fit import cross_fitted
from calibrant.calibration.intervals.means import mean_interval
from calibrant.errors import DataError
from calibrant.progress import table

Carried = dict[str, dict[str, dict[str, float | None]]]  # set, method, what
OF_FEATURES = tuple(m for m, found in FORMS.items() if found.reads_features)
METHODS = ("temperature", "order-preserving", "vector", "structured", "spline")
OWN = "these rows"


class LabelledRows(NamedTuple):
    logits: NDArray[Any]
    labels: NDArray[np.int64]
    features: NDArray[Any] | None = None


def read_sets(own: Path, others: Sequence[Path], asked: Asked | None) -> tuple[LabelledRows, dict[str, LabelledRows]]:
    def rows(path: Path) -> LabelledRows:
        data = PredictionsFile.open(path, asked=asked).read(features=True).labelled()
        refuse_cut(data.source.model, path, "fitting a calibrator")
        if len(data) == 0:
            raise DataError("no row has a label", where=path, fix="only labels show how a map carries over")
        return LabelledRows(data.logits, data.labels, data.features)

    first, sets = rows(own), {}
    for path in others:
        found = rows(path)
        if found.logits.shape[1] != first.logits.shape[1]:
            raise DataError(f"has {found.logits.shape[1]} classes, {own.name} {first.logits.shape[1]}", where=path)
        sets[path.name if path.name not in sets else str(path)] = found
    return first, sets


def carried(own: LabelledRows, others: Mapping[str, LabelledRows], methods: Sequence[str]) -> Carried:
    """NLL of each method on each set, and its paired difference to the temperature with a 95 % interval."""
    seen = all(rows.features is not None for rows in (own, *others.values()))
    names = tuple(dict.fromkeys(("temperature", *methods, *(OF_FEATURES if seen else ()))))
    losses: dict[str, dict[str, NDArray[np.float64]]] = {s: {} for s in (OWN, *others)}
    for method in names:
        features: dict[str, Any] = {"features": own.features} if method in OF_FEATURES else {}
        fitted = fit(method, own.logits, own.labels, **features)
        held_out = cross_fitted(method, own.logits, own.labels, chosen=fitted, **features)
        losses[OWN][method] = label_losses(held_out, own.labels)
        for name, rows in others.items():
            losses[name][method] = label_losses(fitted.logits(rows.logits, rows.features), rows.labels)
    return {s: {m: _beside(losses[s][m], losses[s]["temperature"]) for m in names} for s in losses}


def _beside(losses: NDArray[np.float64], temperature: NDArray[np.float64]) -> dict[str, float | None]:
    away, n = losses - temperature, len(losses)
    low, high = mean_interval(float(away.mean()), float(away.var(ddof=1)) if n > 1 else 0.0, float(n))
    return {"nll": float(losses.mean()), "minus_temperature": float(away.mean()), "low": low, "high": high}


def most_robust(found: Carried) -> str:
    """The method whose worst set, counted from the temperature, is best; of equals the first."""

    def worst(method: str) -> float:
        return max(float(by_method[method]["minus_temperature"] or 0.0) for by_method in found.values())

    return min(found[OWN], key=worst)


def carried_lines(found: Carried) -> str:
    lines = [
        (name, method, f"{v['nll']:.4f}", f"{v['minus_temperature']:+.4f}", _span(v["low"], v["high"]))
        for name, by_method in found.items()
        for method, v in by_method.items()
    ]
    return table(("judged on", "method", "NLL", "minus temperature", "95 % interval"), lines, left=2)


def _span(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:+.4f} .. {high:+.4f}"
