"""The numbers that the pages show: calls of calibrant.calibration, kept as long as the files stay what they are.

Nothing is worked out here. What the page shows for a file and a number of bins is what `calibrant evaluate --json`
prints for them, because both call the same functions on the same statistics.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from calibrant.calibration.adjustment import class_weights
from calibrant.calibration.evaluation import Evaluation, evaluate, gap_sample
from calibrant.calibration.intervals import GapSample, Measured, measure_gaps, share_interval
from calibrant.calibration.metrics import ece_of, over_under_of
from calibrant.calibration.reliability import ReliabilityDiagram, class_reliability_diagram, reliability_diagram
from calibrant.calibration.statistics import Statistics, for_file
from calibrant.dashboard.artifacts import CalibratorRef, PredictionsRef, Stamp, stamp, stamps

DEFAULT_BINS = 15
_making = threading.Lock()


@dataclass(frozen=True)
class Scored:
    """Predictions as they are, or through a calibrator; hashable by what lies on disk, so results can be kept."""

    files: tuple[Stamp, ...]
    path: PredictionsRef
    calibrator: CalibratorRef | None
    calibrator_file: Stamp | None

    @classmethod
    def of(cls, predictions: PredictionsRef, calibrator: CalibratorRef | None = None) -> Scored:
        return cls(
            stamps(predictions.path), predictions, calibrator, None if calibrator is None else stamp(calibrator.path)
        )

    def __hash__(self) -> int:
        return hash((self.files, self.calibrator_file))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scored) and (self.files, self.calibrator_file) == (other.files, other.calibrator_file)


@dataclass(frozen=True)
class OverUnder:
    over: float
    under: float


def statistics(scored: Scored, *, uniform: bool = False) -> Statistics:
    """One pass over the file the first time; afterwards the summary beside it, or what is in memory."""
    with _making:  # two readers of one page ask at the same moment; one pass is enough
        found = _statistics(scored)
    return _uniform(scored, found) if uniform else found


@lru_cache(128)
def _statistics(scored: Scored) -> Statistics:
    calibrator = None if scored.calibrator is None else scored.calibrator.calibrator
    return for_file(scored.path.path, calibrator)


def _uniform(scored: Scored, found: Statistics) -> Statistics:
    """Each row weighted so that every class that occurs counts the same, as evaluate --target-prior uniform does."""
    rows = found.by_true.rows
    return found.weighted(class_weights(rows, (rows > 0).astype(np.float64)))


@lru_cache(512)
def scores(scored: Scored, *, uniform: bool = False, bins: int = DEFAULT_BINS) -> Evaluation:
    """Every metric with interval and null value."""
    names = scored.path.source.class_names
    return evaluate(statistics(scored), bins=bins, target_prior="uniform" if uniform else None, class_names=names)


@lru_cache(512)
def calibration_error(scored: Scored, bins: int, *, uniform: bool = False) -> Measured:
    """ECE over so many equal-width bins, with interval and null value: what `scores` has, without the rest."""
    found = statistics(scored, uniform=uniform)
    return measure_gaps(gap_sample(found, bins), "sum", value=ece_of(found.bins(bins)))


@lru_cache(512)
def over_under(scored: Scored, bins: int, *, uniform: bool = False) -> OverUnder:
    halves = over_under_of(statistics(scored, uniform=uniform).bins(bins))
    return OverUnder(halves.over, halves.under)


@dataclass(frozen=True)
class Predicted:
    """The rows that were predicted as one of some classes."""

    rows: int
    precision: float | None
    ece: Measured | None


@lru_cache(512)
def selection(scored: Scored, bins: int, predicted: tuple[int, ...]) -> Predicted:
    """As `evaluate` has them for a class or a group."""
    table = statistics(scored).predicted_class_bins(list(predicted), bins)
    rows = int(table.rows.sum())
    if rows == 0:
        return Predicted(0, None, None)
    return Predicted(
        rows, float(table.correct_sum.sum() / table.weight.sum()), measure_gaps(GapSample.of(table), "sum")
    )


@lru_cache(512)
def diagram(
    scored: Scored, bins: int, *, uniform: bool = False, predicted: tuple[int, ...] | None = None
) -> ReliabilityDiagram:
    """Of all rows, or of those predicted as one of some classes (by true class it would be biased)."""
    if predicted is not None:
        return class_reliability_diagram(statistics(scored), list(predicted), bins)
    return reliability_diagram(statistics(scored, uniform=uniform), bins)


@dataclass(frozen=True)
class Summary:
    """A line of the overview. `..._after`: through the run's calibrator, None where it has none."""

    rows: int
    accuracy: Measured
    balanced_accuracy: float
    nll: float
    ece: Measured
    nll_after: float | None
    ece_after: Measured | None
    temperature: float | None


@lru_cache(1024)
def summary(before: Scored, after: Scored | None) -> Summary:
    """What `evaluate` says, without the parts that the overview does not show and fifty runs would wait for."""
    found = statistics(before)
    present = found.by_true.rows > 0
    accuracy = found.mean_by_class(found.right_rows)
    recall = found.right_rows[present] / found.by_true.rows[present]
    ref = None if after is None else after.calibrator
    temperature = None if ref is None else ref.calibrator.parameters.get("temperature")
    return Summary(
        found.rows, Measured(accuracy, *share_interval(accuracy, found.effective_rows)), float(recall.mean()),
        _nll(found), calibration_error(before, DEFAULT_BINS),
        None if after is None else _nll(statistics(after)),
        None if after is None else calibration_error(after, DEFAULT_BINS),
        float(temperature) if isinstance(temperature, int | float) else None,
    )  # fmt: skip


def _nll(found: Statistics) -> float:
    return float("inf") if found.by_true.zero.any() else found.mean_by_class(found.by_true.nll)
