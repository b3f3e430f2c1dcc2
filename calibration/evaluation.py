"""`evaluate`: every metric of a model with its interval and null value; table, JSON, report and dashboard read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.inputs import check_labels, check_probs
from calibrant.calibration.intervals.binned import DRAWS, measure_gaps, told
from calibrant.calibration.intervals.gaps import GapSample
from calibrant.calibration.intervals.means import Z95, measure_losses, share_interval
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.intervals.ranking import measure_auroc, ranking_of_cells
from calibrant.calibration.intervals.risk_coverage import measure_aurc
from calibrant.calibration.intervals.simulated import plausible_gaps
from calibrant.calibration.intervals.smooth import measure_smooth
from calibrant.calibration.metrics.binned_errors import debiased_of, ece_of, over_under_of, rms_of
from calibrant.calibration.metrics.ranking import area_under_risk_coverage, auroc_of
from calibrant.calibration.metrics.table import METRICS
from calibrant.calibration.statistics.accumulate import statistics_of_probabilities
from calibrant.calibration.statistics.bins import Bins
from calibrant.calibration.statistics.mass import mass_bins, mass_rows
from calibrant.calibration.statistics.row_groups import as_columns, of_probabilities, worth_judging
from calibrant.calibration.statistics.statistics import Statistics
from calibrant.shares import class_weights

Vector = NDArray[np.float64]
_TOP = 5  # of so few classes the label is always among the five most probable


@dataclass(frozen=True)
class ClassResult:
    """One class, or a group of classes. `gap`: mean confidence minus accuracy of the rows predicted as it."""

    name: str
    rows: int
    predicted: int
    recall: float | None
    precision: float | None
    f1: float | None
    gap: float | None
    ece: Measured | None
    classwise_ece: float | None

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "ece": None if self.ece is None else self.ece.to_dict()}


@dataclass(frozen=True)
class RowGroup:
    """The rows of one value of a group column, as a site or a patient, judged by themselves."""

    column: str
    value: str
    metrics: Mapping[str, Measured]
    statistics: Statistics
    weight: float  # of its rows, where those of the whole weigh one on average

    @property
    def name(self) -> str:
        return f'{self.column} "{self.value}"'

    @property
    def rows(self) -> int:
        return self.statistics.rows

    def to_dict(self) -> dict[str, Any]:
        metrics = {name: m.to_dict() for name, m in self.metrics.items()}
        return {"column": self.column, "value": self.value, "rows": self.rows, "metrics": metrics}


@dataclass(frozen=True)
class Evaluation:
    rows: int
    effective_rows: float
    classes: int
    bins: int
    exact: bool  # False: ranking and equal-mass metrics are interpolated inside cells of confidence
    target_prior: tuple[float, ...] | None
    metrics: Mapping[str, Measured]
    reliability: Mapping[str, tuple[float, ...]]  # per bin: low, high, rows, share, confidence, accuracy
    per_class: tuple[ClassResult, ...]
    groups: tuple[ClassResult, ...]
    zero_probability_labels: int
    row_groups: tuple[RowGroup, ...] = ()

    def __getattr__(self, name: str) -> Measured:
        try:
            return self.__dict__["metrics"][name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(name) from None

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows, "effective_rows": self.effective_rows, "classes": self.classes, "bins": self.bins,
            "exact": self.exact, "target_prior": None if self.target_prior is None else list(self.target_prior),
            "zero_probability_labels": self.zero_probability_labels,
            "metrics": {name: m.to_dict() for name, m in self.metrics.items()},
            "reliability": {name: list(v) for name, v in self.reliability.items()},
            "per_class": [c.to_dict() for c in self.per_class],
            "groups": [c.to_dict() for c in self.groups],
            "row_groups": [g.to_dict() for g in self.row_groups],
        }  # fmt: skip


def evaluate(
    probs_or_statistics: ArrayLike | Statistics,
    labels: ArrayLike | None = None,
    *,
    bins: int = 15,
    train_prior: ArrayLike | None = None,
    target_prior: ArrayLike | str | None = None,
    class_names: Sequence[str] | None = None,
    groups: Mapping[str, Sequence[int]] | None = None,
    by: Mapping[str, ArrayLike] | ArrayLike | None = None,
) -> Evaluation:
    """Every metric of probabilities (N, C) and labels, or of their statistics.

    `target_prior` ("uniform", or a share for each class) weights each row by target / data prior of its class; the
    data prior is `train_prior`, or the labels' own shares where that is not given. `groups`: classes by name of a
    group. `by`: a value for each row, as its site, or several such by name; `row_groups` judges those of each value.
    """
    apart: dict[tuple[str, str], Statistics] = {}
    if isinstance(probs_or_statistics, Statistics):
        if labels is not None:
            raise ValueError("statistics already hold the labels")
        if by is not None:
            raise ValueError("statistics do not know which row is of which group")
        statistics = probs_or_statistics
    else:
        if labels is None:
            raise ValueError("probabilities need labels")
        statistics = statistics_of_probabilities(probs_or_statistics, labels)
        if by is not None:
            p = check_probs(probs_or_statistics)
            columns = as_columns(by, len(p))
            apart = of_probabilities(p, check_labels(labels, *p.shape), columns, worth_judging(columns)[0])
    prior = None
    if target_prior is not None:
        statistics, prior = under_prior(statistics, train_prior, target_prior)
    names = tuple(class_names) if class_names is not None else tuple(str(k) for k in range(statistics.classes))
    table = statistics.bins(bins)
    return Evaluation(
        rows=statistics.rows,
        effective_rows=statistics.effective_rows,
        classes=statistics.classes,
        bins=bins,
        exact=statistics.exact_rows,
        target_prior=prior,
        metrics=every_metric(statistics, bins),
        reliability=_reliability(table, bins),
        per_class=per_class_results(statistics, names, bins) if statistics.classes <= 2000 else (),
        groups=tuple(class_result(statistics, name, members, bins) for name, members in (groups or {}).items()),
        zero_probability_labels=int(statistics.by_true.zero.sum()),
        row_groups=judged_groups(apart, statistics, bins),
    )


def every_metric(statistics: Statistics, bins: int) -> dict[str, Measured]:
    return {
        **scores(statistics),
        **calibration_errors(statistics, bins),
        "smooth_ece": told(measure_smooth(statistics), statistics),
        **{m.key: m.measure(statistics, bins) for m in METRICS if m.measured},
        **ranking(statistics),
    }


def judged_groups(found: Mapping[tuple[str, str], Statistics], whole: Statistics, bins: int) -> tuple[RowGroup, ...]:
    """Each group of rows by itself, a row counting as it does in the whole; without those that count nothing."""
    groups = []
    for (column, value), s in found.items():
        weight = float(whole.weights @ s.by_true.rows)
        if weight > 0:
            s = s.weighted(whole.class_weights)
            groups.append(RowGroup(column, value, every_metric(s, bins), s, weight))
    return tuple(groups)


def under_prior(
    s: Statistics, train_prior: ArrayLike | None, target: ArrayLike | str
) -> tuple[Statistics, tuple[float, ...]]:
    """The rows weighted to a target prior, and its shares."""
    data = s.by_true.rows if train_prior is None else train_prior
    if isinstance(target, str):
        if target != "uniform":
            raise ValueError(f'target prior is {target!r}, expected "uniform" or numbers')
        wanted: ArrayLike = (np.asarray(data) > 0).astype(np.float64)
    else:
        wanted = target
    weights = class_weights(data, wanted)
    share = np.asarray(wanted, np.float64)
    return s.weighted(weights), tuple((share / share.sum()).tolist())


# ---- scores by true class ----


def scores(s: Statistics) -> dict[str, Measured]:
    t, n, w = s.by_true, s.by_true.rows, s.weights
    total, effective = float(w @ n), s.effective_rows
    right = s.right_rows
    accuracy = float(w @ right / total)
    cells = s.cells()
    claimed = float(cells.confidence_sum.sum() / cells.weight.sum())
    top5 = float(w @ t.top5 / total)
    worth = effective if s.class_weights is None else _worth(w, t.top5, n, top5, effective)
    out: dict[str, Measured] = {
        "accuracy": Measured(accuracy, *share_interval(accuracy, effective), null=claimed),
        **({"top5_accuracy": Measured(top5, *share_interval(top5, worth))} if s.classes > _TOP else {}),
        "mean_confidence": Measured(claimed),
    }
    present = n > 0
    recall = right[present] / n[present]
    smoothed = (right[present] + 1) / (n[present] + 2)
    balanced = float(recall.mean())
    half = Z95 * float(np.sqrt((smoothed * (1 - smoothed) / n[present]).sum())) / int(present.sum())
    hits = (s.right.total + s.wrong_by_predicted.total).sum(axis=1)
    expected = np.maximum(s.probability.total.sum(axis=1), 1e-300)
    calibrated = float((hits / expected)[present].mean()) if s.class_weights is None else None
    out["balanced_accuracy"] = Measured(balanced, max(balanced - half, 0.0), min(balanced + half, 1.0), null=calibrated)
    return {**out, **measure_losses(s)}


def _worth(weights: Vector, hits: NDArray[Any], rows: NDArray[np.int64], share: float, effective: float) -> float:
    """Rows that a weighted share is worth: fewer than the weights tell where the misses are those of heavy classes."""
    each = (hits + 1) / (rows + 2)
    variance = float((weights**2) @ (rows * each * (1 - each))) / float(weights @ rows) ** 2
    inside = min(max(share, 1 / (effective + 2)), 1 - 1 / (effective + 2))
    return min(effective, inside * (1 - inside) / variance) if variance > 0 else effective


# ---- calibration ----


def calibration_errors(s: Statistics, bins: int) -> dict[str, Measured]:
    table = s.bins(bins)
    sample = gap_sample(s, bins)
    halves = over_under_of(table)
    mass = mass_bins(s, bins)
    mass_sample = GapSample.of(mass, mass.weight**2 / np.maximum(mass_rows(s, mass), 1e-300))
    shapes = plausible_gaps(sample, DRAWS)
    ece = measure_gaps(sample, "sum", value=ece_of(table), shapes=shapes)
    most = np.inf if ece.high is None else ece.high
    found = {
        "ece": ece,
        "over_ece": measure_gaps(sample, "over", value=halves.over, shapes=shapes, high=most),
        "under_ece": measure_gaps(sample, "under", value=halves.under, shapes=shapes, high=most),
        "adaptive_ece": measure_gaps(mass_sample, "sum", value=ece_of(mass)),
        "rms_calibration_error": measure_gaps(sample, "rms", value=rms_of(table), shapes=shapes),
        "mce": _largest_gap(s, sample, shapes),
        "debiased_ece": replace(
            measure_gaps(mass_sample, "rms"), value=debiased_of(mass, mass_rows(s, mass)), null=0.0, null_high=None
        ),
    }
    return {name: m if m.withheld else told(m, s) for name, m in found.items()}


def _largest_gap(s: Statistics, sample: GapSample, shapes: Vector) -> Measured:
    """Without an interval under a target prior: the gap of one bin is that of the few rows that weigh most in it."""
    found = measure_gaps(sample, "max", shapes=shapes)
    if s.class_weights is None:
        return found
    return found.without_interval("under a target prior the largest gap is that of the few rows that weigh most")


def gap_sample(s: Statistics, bins: int) -> GapSample:
    """The equal-width bins as an experiment, with the spread of confidence inside each."""
    table = s.bins(bins)
    weight = np.where(table.weight > 0, table.weight, 1.0)
    spread = s.confidence_squares(bins) / weight - table.confidence**2
    return GapSample.of(table, s.weight_squares(bins), spread)


def _reliability(table: Bins, bins: int) -> dict[str, tuple[float, ...]]:
    edges = np.arange(bins + 1) / bins
    return {
        "low": tuple(edges[:-1].tolist()), "high": tuple(edges[1:].tolist()), "rows": tuple(table.rows.tolist()),
        "share": tuple(table.share.tolist()), "confidence": tuple(table.confidence.tolist()),
        "accuracy": tuple(table.accuracy.tolist()),
    }  # fmt: skip


# ---- ranking ----


def ranking(s: Statistics) -> dict[str, Measured]:
    if s.kept is not None:
        c, wrong = s.kept.confidence, ~s.kept.correct
        w = None if s.class_weights is None else s.weights[s.kept.label]
        area = area_under_risk_coverage(c, wrong, w)
        auc = auroc_of(c[~wrong], c[wrong], None if w is None else w[~wrong], None if w is None else w[wrong])
    else:
        area, auc = ranking_of_cells(s)
    return {"aurc": measure_aurc(s, area), "auroc": measure_auroc(s, auc)}


# ---- classes ----


def per_class_results(s: Statistics, names: Sequence[str], bins: int) -> tuple[ClassResult, ...]:
    return tuple(class_result(s, name, (k,), bins) for k, name in enumerate(names))


def class_result(s: Statistics, name: str, members: Sequence[int], bins: int) -> ClassResult:
    chosen = list(members)
    rows, claimed = int(s.by_true.rows[chosen].sum()), int(s.predicted_rows[chosen].sum())
    hit = int(s.right_rows[chosen].sum())
    table = s.predicted_class_bins(chosen, bins)
    gap = float((table.confidence_sum - table.correct_sum).sum() / claimed) if claimed else None
    classwise = float(np.mean([ece_of(s.class_probability_bins(k, bins)) for k in chosen]))
    return ClassResult(
        name,
        rows,
        claimed,
        hit / rows if rows else None,
        hit / claimed if claimed else None,
        2 * hit / (rows + claimed) if rows + claimed else None,
        gap,
        measure_gaps(GapSample.of(table), "sum", draws=200) if claimed else None,
        classwise,
    )
