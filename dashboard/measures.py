"""The numbers that the pages show: calls of calibrant.calibration, kept as long as the files stay what they are.

Nothing is worked out here. What the page shows for a file and a number of bins is what `calibrant evaluate --json`
prints for them, because both call the same functions on the same statistics.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.adjustment import class_weights
from calibrant.calibration.bins import Bins, equal_mass
from calibrant.calibration.compare import Difference, compare
from calibrant.calibration.evaluation import Evaluation, evaluate, gap_sample, mass_rows
from calibrant.calibration.intervals import GapSample, Measured, measure_gaps, share_interval
from calibrant.calibration.metrics import ece_of, over_under_of
from calibrant.calibration.reliability import (
    ReliabilityDiagram,
    class_reliability_diagram,
    diagram_of_bins,
    reliability_diagram,
)
from calibrant.calibration.softmax import softmax
from calibrant.calibration.statistics import ROWS_KEPT, Statistics, for_file
from calibrant.dashboard.artifacts import CalibratorRef, PredictionsRef
from calibrant.dashboard.files import Stamp, stamp, stamps
from calibrant.errors import DataError
from calibrant.predictions import Predictions, read_predictions

DEFAULT_BINS = 15
MOST_PAIRED_ROWS = 200_000
_CLASS_DRAWS = 200  # as `evaluate` takes for classes and groups
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
def mass_error(scored: Scored, bins: int, *, uniform: bool = False) -> Measured:
    """ECE over bins of equally many rows."""
    found = statistics(scored, uniform=uniform)
    table = _mass_bins(found, bins)
    squares = table.weight**2 / np.maximum(mass_rows(found, table), 1e-300)
    return measure_gaps(GapSample.of(table, squares), "sum", value=ece_of(table))


@lru_cache(512)
def mass_diagram(scored: Scored, bins: int, *, uniform: bool = False) -> ReliabilityDiagram:
    """Bins of equally many rows; they have no edges of a round value, so `low` and `high` mean nothing here."""
    return diagram_of_bins(_mass_bins(statistics(scored, uniform=uniform), bins))


def has_rows(scored: Scored) -> bool:
    """Whether the statistics keep single rows, which equal-mass bins are cut from (up to 100,000 rows)."""
    return statistics(scored).exact_rows


def _mass_bins(found: Statistics, bins: int) -> Bins:
    if found.kept is None:
        raise DataError(f"bins of equal mass are drawn for up to {ROWS_KEPT:,} rows", fix="use bins of equal width")
    weights = None if found.class_weights is None else found.weights[found.kept.label]
    return equal_mass(found.kept.confidence, found.kept.correct, bins, weights)


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
        rows,
        float(table.correct_sum.sum() / table.weight.sum()),
        measure_gaps(GapSample.of(table), "sum", draws=_CLASS_DRAWS),
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
    effective_rows: float
    accuracy: Measured
    balanced_accuracy: float
    nll: float
    ece: Measured
    nll_after: float | None
    ece_after: Measured | None
    temperature: float | None


@lru_cache(1024)
def summary(before: Scored, after: Scored | None, *, bins: int = DEFAULT_BINS, uniform: bool = False) -> Summary:
    """What `evaluate` says, without the parts that take long and are shown only on demand."""
    found = statistics(before, uniform=uniform)
    present = found.by_true.rows > 0
    accuracy = found.mean_by_class(found.right_rows)
    recall = found.right_rows[present] / found.by_true.rows[present]
    ref = None if after is None else after.calibrator
    temperature = None if ref is None else ref.calibrator.parameters.get("temperature")
    return Summary(
        found.rows, found.effective_rows,
        Measured(accuracy, *share_interval(accuracy, found.effective_rows)), float(recall.mean()),
        _nll(found), calibration_error(before, bins, uniform=uniform),
        None if after is None else _nll(statistics(after, uniform=uniform)),
        None if after is None else calibration_error(after, bins, uniform=uniform),
        float(temperature) if isinstance(temperature, int | float) else None,
    )  # fmt: skip


def _nll(found: Statistics) -> float:
    return float("inf") if found.by_true.zero.any() else found.mean_by_class(found.by_true.nll)


@lru_cache(32)
def differences(first: Scored, second: Scored) -> dict[str, Difference] | None:
    """Second minus first on the same rows, with paired intervals; None where the rows are not the same."""
    if first.path.rows != second.path.rows or first.path.rows > MOST_PAIRED_ROWS:
        return None
    one, two = (read_predictions(s.path.path) for s in (first, second))
    if (
        _bare_ids(first, one) != _bare_ids(second, two)
        or not np.array_equal(one.labels, two.labels)
        or one.class_names != two.class_names
    ):
        return None
    known = np.flatnonzero(one.labels >= 0)
    if len(known) < 2:
        return None
    return compare(_probabilities(first, one)[known], _probabilities(second, two)[known], one.labels[known])


def _bare_ids(scored: Scored, data: Predictions) -> list[str]:
    """Training writes test/a/1.png, `calibrant predict` a/1.png for the same picture."""
    return [i.removeprefix(f"{scored.path.name}/") for i in data.ids]


def _probabilities(scored: Scored, data: Predictions) -> NDArray[np.float64]:
    if scored.calibrator is None:
        return softmax(data.logits.astype(np.float64))
    return scored.calibrator.calibrator.probabilities(data.logits)
