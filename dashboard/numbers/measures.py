"""The numbers that the pages show: calls of calibrant.calibration, kept as long as the files stay what they are.

Nothing is worked out here. What the page shows for a file and a number of bins is what `calibrant evaluate --json`
prints for them, because both call the same functions on the same statistics.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.predictions import Predictions, read_predictions
from calibrant.calibration.compare import Difference, compare
from calibrant.calibration.diagrams.reliability import (
    ReliabilityDiagram,
    class_reliability_diagram,
    diagram_of_bins,
    equal_mass_diagram,
    reliability_diagram,
)
from calibrant.calibration.diagrams.smooth_curve import SmoothCurve, class_smooth_reliability, smooth_reliability
from calibrant.calibration.evaluation import Evaluation, evaluate, gap_sample, under_prior
from calibrant.calibration.formula import Formula
from calibrant.calibration.intervals.binned import measure_gaps, told
from calibrant.calibration.intervals.gaps import GapSample
from calibrant.calibration.intervals.means import share_interval
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.intervals.smooth import measure_smooth
from calibrant.calibration.metrics.binned_errors import ece_of, over_under_of
from calibrant.calibration.statistics.bins import Bins, equal_mass
from calibrant.calibration.statistics.mass import mass_bins, mass_rows
from calibrant.calibration.statistics.statistics import Statistics, for_file
from calibrant.dashboard.folder.contents import opened
from calibrant.dashboard.numbers import rows as single_rows
from calibrant.dashboard.numbers.memory import give_back
from calibrant.dashboard.numbers.predictions_through import Scored

Kind = Literal["width", "mass", "smooth"]
# Class shares under which numbers are asked for: None, as the rows are; "uniform"; or a share for each class.
Target = str | tuple[float, ...] | None
Members = tuple[int, ...] | None  # of the predicted classes to look at; None: all rows

DEFAULT_BINS = 15
MOST_PAIRED_ROWS = 200_000
_CLASS_DRAWS = 200  # as `evaluate` takes for classes and groups
_making = threading.Lock()


@dataclass(frozen=True)
class OverUnder:
    over: float
    under: float


def statistics(scored: Scored, target: Target = None) -> Statistics:
    """One pass over the file the first time; afterwards the summary beside it, or what is in memory."""
    with _making:  # two readers of one page ask at the same moment; one pass is enough
        found = _statistics(scored)
    return found if target is None else under_prior(found, None, target)[0]


@lru_cache(128)
def _statistics(scored: Scored) -> Statistics:
    found = for_file(scored.path.path, scored.formula(), file=opened(scored.files))
    give_back()
    return found


def weights_of(found: Statistics, target: Target) -> NDArray[np.float64]:
    """Of each true class, as evaluate --target-prior has them."""
    return found.weights if target is None else under_prior(found, None, target)[0].weights


@lru_cache(512)
def scores(scored: Scored, *, target: Target = None, bins: int = DEFAULT_BINS) -> Evaluation:
    """Every metric with interval and null value."""
    names = scored.path.source.class_names
    return evaluate(statistics(scored), bins=bins, target_prior=target, class_names=names)


@lru_cache(512)
def calibration_error(scored: Scored, bins: int, *, kind: Kind = "width", target: Target = None) -> Measured:
    """ECE over so many equal-width bins, or bins of equally many rows, or SmoothECE, with interval and null value:
    what `scores` has, without the rest."""
    found = statistics(scored, target)
    if kind == "smooth":
        return told(measure_smooth(found), found)
    if kind == "width":
        return told(measure_gaps(gap_sample(found, bins), "sum", value=ece_of(found.bins(bins))), found)
    table = mass_bins(found, bins)
    squares = table.weight**2 / np.maximum(mass_rows(found, table), 1e-300)
    return told(measure_gaps(GapSample.of(table, squares), "sum", value=ece_of(table)), found)


@lru_cache(512)
def over_under(scored: Scored, bins: int, *, kind: Kind = "width", target: Target = None) -> OverUnder:
    if kind == "smooth":
        drawn = curve(scored, target=target)
        return OverUnder(drawn.over, drawn.under)
    found = statistics(scored, target)
    halves = over_under_of(found.bins(bins) if kind == "width" else mass_bins(found, bins))
    return OverUnder(halves.over, halves.under)


@dataclass(frozen=True)
class Predicted:
    """The rows that were predicted as one of some classes."""

    rows: int
    precision: float | None
    ece: Measured | None


@lru_cache(512)
def selection(scored: Scored, bins: int, predicted: tuple[int, ...], *, kind: Kind = "width") -> Predicted:
    """As `evaluate` has them for a class or a group. The smooth error has no interval here."""
    table = statistics(scored).predicted_class_bins(list(predicted), bins)
    rows = int(table.rows.sum())
    if rows == 0:
        return Predicted(0, None, None)
    if kind == "mass":
        table = _mass_bins_of(scored, bins, predicted)
    return Predicted(
        rows,
        float(table.correct_sum.sum() / table.weight.sum()),
        Measured(curve(scored, predicted=predicted).value)
        if kind == "smooth"
        else measure_gaps(GapSample.of(table), "sum", draws=_CLASS_DRAWS),
    )


@lru_cache(512)
def diagram(
    scored: Scored, bins: int, *, kind: Kind = "width", target: Target = None, predicted: Members = None
) -> ReliabilityDiagram:
    """Of all rows, or of those predicted as one of some classes (by true class it would be biased).

    Bins of equal mass have no edges of a round value: `low` and `high` mean nothing there.
    """
    if predicted is None:
        make = equal_mass_diagram if kind == "mass" else reliability_diagram
        return make(statistics(scored, target), bins)
    if kind == "mass":
        return diagram_of_bins(_mass_bins_of(scored, bins, predicted))
    return class_reliability_diagram(statistics(scored), list(predicted), bins)


def _mass_bins_of(scored: Scored, bins: int, predicted: tuple[int, ...]) -> Bins:
    """From single rows: the cells by class are too coarse to cut through."""
    found = single_rows.rows_of(scored)
    chosen = np.isin(found.predicted, predicted)
    return equal_mass(found.confidence[chosen], found.right[chosen], bins)


@lru_cache(64)
def curve(scored: Scored, *, target: Target = None, predicted: Members = None) -> SmoothCurve:
    if predicted is None:
        return smooth_reliability(statistics(scored, target))
    return class_smooth_reliability(statistics(scored), list(predicted))


@dataclass(frozen=True)
class Summary:
    """A line of the overview. `..._after`, and accuracy: through the formula, None where the network is alone."""

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
def summary(before: Scored, after: Scored | None, *, bins: int = DEFAULT_BINS, target: Target = None) -> Summary:
    """What `evaluate` says, without the parts that take long and are shown only on demand."""
    first = statistics(before, target)
    found = first if after is None else statistics(after, target)
    present = found.by_true.rows > 0
    accuracy = found.mean_by_class(found.right_rows)
    recall = found.right_rows[present] / found.by_true.rows[present]
    return Summary(
        found.rows,
        found.effective_rows,
        Measured(accuracy, *share_interval(accuracy, found.effective_rows)),
        float(recall.mean()),
        _nll(first),
        calibration_error(before, bins, target=target),
        None if after is None else _nll(found),
        None if after is None else calibration_error(after, bins, target=target),
        None if after is None else _temperature(after.formula()),
    )


def _temperature(formula: Formula) -> float | None:
    value = None if formula.calibrator is None else formula.calibrator.parameters.get("temperature")
    return float(value) if isinstance(value, int | float) else None


def _nll(found: Statistics) -> float:
    return float("inf") if found.by_true.zero.any() else found.mean_by_class(found.by_true.nll)


@lru_cache(32)
def differences(first: Scored, second: Scored) -> dict[str, Difference] | None:
    """Second minus first on the same rows, with paired intervals; None where the rows are not the same."""
    if first.path.rows != second.path.rows or first.path.rows > MOST_PAIRED_ROWS:
        return None
    one, two = (read_predictions(s.path.path, features=s.formula().reads_features) for s in (first, second))
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
    return scored.formula().probabilities(data.logits, data.features)
