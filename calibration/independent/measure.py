"""What is known of each label by itself: is its probability right?

Of a label the claim is p, the probability that it is there, and not a confidence in the better of two answers: bins run
over p from 0 to 1, and the error of a bin is mean p - share of rows that have the label. Interval and null value are
those of `intervals.binned`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.binned import measure_gaps
from calibrant.calibration.intervals.gaps import GapSample
from calibrant.calibration.intervals.means import mean_interval, share_interval
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.intervals.ranking import score_interval
from calibrant.calibration.metrics.binned_errors import ece_of
from calibrant.calibration.metrics.ranking import auroc_of
from calibrant.calibration.softmax import sigmoid
from calibrant.calibration.statistics.bins import Bins, equal_width, equal_width_index
from calibrant.calibration.verdict.level import level_of
from calibrant.calibration.verdict.policy import MARGIN
from calibrant.calibration.verdict.verdict import Level
from calibrant.errors import DataError

Vector = NDArray[np.float64]
NAMES = ("base_rate", "claimed", "ece", "nll", "brier", "auroc")


@dataclass(frozen=True)
class LabelFigures:
    """`rows` are those where it is known whether the label is there, `present` those where it is."""

    name: str
    rows: int
    present: int
    level: Level
    metrics: dict[str, Measured]
    bins: Bins

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "rows": self.rows, "present": self.present, "level": self.level,
            "metrics": {k: m.to_dict() for k, m in self.metrics.items()},
            "reliability": {
                "rows": self.bins.rows.tolist(), "claimed": self.bins.confidence.tolist(),
                "share": self.bins.accuracy.tolist(),
            },
        }  # fmt: skip


@dataclass(frozen=True)
class LabelsEvaluation:
    """`mean` of the labels that can be measured. Its interval is the mean of theirs: labels of one picture may err
    together, so nothing is gained from their number."""

    labels: tuple[LabelFigures, ...]
    mean: dict[str, Measured]
    rows: int
    margin: float

    def of_level(self, level: Level) -> list[str]:
        return [label.name for label in self.labels if label.level == level]

    def to_dict(self) -> dict[str, Any]:
        return {
            "outcome": "independent", "rows": self.rows, "margin": self.margin,
            "mean": {k: m.to_dict() for k, m in self.mean.items()}, "labels": [x.to_dict() for x in self.labels],
        }  # fmt: skip


def measure_labels(
    logits: NDArray[np.floating[Any]],
    present: NDArray[np.int8],
    names: Sequence[str],
    *,
    bins: int = 15,
    weights: Vector | None = None,
    margin: float = MARGIN,
) -> LabelsEvaluation:
    """logits: (N, L). present: (N, L) of 1, 0, and -1 where it is not known."""
    p = sigmoid(logits)
    if not (present >= 0).any():
        raise DataError("no row has a known label")
    found = tuple(
        _label(name, p[:, k], present[:, k], bins=bins, weights=weights, margin=margin) for k, name in enumerate(names)
    )
    return LabelsEvaluation(found, _mean(found), int((present >= 0).any(axis=1).sum()), margin)


def _label(
    name: str, p: Vector, present: NDArray[np.int8], *, bins: int, weights: Vector | None, margin: float
) -> LabelFigures:
    known = present >= 0
    p, y = p[known], present[known] == 1
    w = None if weights is None else weights[known]
    table = equal_width(p, y, bins, w)
    if not len(p):
        return LabelFigures(name, 0, 0, "unknown", {}, table)
    ece = measure_gaps(_sample(p, table, bins, w), "sum", value=ece_of(table))
    total = float(len(p)) if w is None else float(w.sum() ** 2 / (w**2).sum())
    loss = -np.log(np.maximum(np.where(y, p, 1 - p), 1e-300))
    rate = float(np.average(y, weights=w))
    area = auroc_of(p[y], p[~y], None if w is None else w[y], None if w is None else w[~y])
    sides = (float(y.mean() * total), float((~y).mean() * total))
    metrics = {
        "base_rate": Measured(rate, *share_interval(rate, total)),
        "claimed": Measured(float(np.average(p, weights=w))),
        "ece": ece,
        "nll": _mean_of(loss, w, total, null=_entropy(p)),
        "brier": _mean_of((p - y) ** 2, w, total, null=p * (1 - p)),
        "auroc": Measured(area, *(score_interval(area, *sides) if min(sides) > 0 else (None, None))),
    }
    return LabelFigures(name, len(p), int(y.sum()), level_of(ece, margin), metrics, table)


def _sample(p: Vector, table: Bins, bins: int, w: Vector | None) -> GapSample:
    index = equal_width_index(p, bins)
    one = np.ones(len(p)) if w is None else w
    weight = np.where(table.weight > 0, table.weight, 1.0)
    spread = np.bincount(index, one * p**2, bins) / weight - table.confidence**2
    return GapSample.of(table, np.bincount(index, one**2, bins).astype(np.float64), spread)


def _mean_of(values: Vector, w: Vector | None, rows: float, *, null: Vector) -> Measured:
    mean = float(np.average(values, weights=w))
    variance = float(np.average((values - mean) ** 2, weights=w))
    low, high = mean_interval(mean, variance, rows)
    return Measured(mean, None if low is None else max(low, 0.0), high, float(np.average(null, weights=w)))


def _entropy(p: Vector) -> Vector:
    q = np.clip(p, 1e-300, 1.0)
    r = np.clip(1 - p, 1e-300, 1.0)
    return np.asarray(-p * np.log(q) - (1 - p) * np.log(r))


def _mean(labels: Sequence[LabelFigures]) -> dict[str, Measured]:
    out = {}
    for key in NAMES:
        found = [x.metrics[key] for x in labels if x.metrics and np.isfinite(x.metrics[key].value)]
        if found:
            fields = [asdict(m) for m in found]
            values = {f: [v[f] for v in fields if v[f] is not None] for f in fields[0] if f != "withheld"}
            whole: dict[str, Any] = {f: float(np.mean(v)) for f, v in values.items() if len(v) == len(fields)}
            out[key] = Measured(**whole)
    return out
