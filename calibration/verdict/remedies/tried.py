"""What would help: each tried on the rows that were judged, and offered only where it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calibrant.calibration.evaluation import gap_sample
from calibrant.calibration.intervals.binned import measure_gaps, told
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.metrics.binned_errors import ece_of
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.calibration.verdict.case import Case, JudgedRows, Matrix, Trial
from calibrant.calibration.verdict.causes.harm import Change, nll_change
from calibrant.calibration.verdict.level import capped, level_of
from calibrant.calibration.verdict.remedies.left import left_off
from calibrant.calibration.verdict.verdict import Cause, CauseKind, Remedy
from calibrant.calibration.verdict.words import figure, span
from calibrant.errors import CalibrantError
from calibrant.progress import progress

_NUMBERS, _MOST_ROWS, _FEWEST_ROWS = 2_000_000, 5_000, 20  # logits and rows that a remedy is tried on


@dataclass(frozen=True)
class Tried:
    """A remedy that helps, by how much the NLL falls, and the share of the calibration error that it leaves, freed of
    noise."""

    remedy: Remedy
    against: frozenset[CauseKind]
    gain: float
    left: float

    @property
    def mends(self) -> bool:
        return self.left < 0.5


def rows_tried(rows: JudgedRows) -> JudgedRows:
    return rows.fewer(min(_MOST_ROWS, max(_NUMBERS // rows.plain.shape[1], 500)))


def tried(case: Case, kinds: Sequence[CauseKind], *, margin: float, causes: Sequence[Cause] = ()) -> list[Tried]:
    """The trials against these kinds of causes that help; all on the same rows, cross-fitted. `causes`: what is said of
    single classes and groups, of which each remedy says what it leaves.

    Helps: the interval of the paired change of NLL lies below 0, and the error freed of noise does not grow.
    """
    wanted = sorted((t for t in case.trials if t.against & set(kinds)), key=lambda t: bool(t.after))
    if not wanted or case.rows is None:
        return []
    rows = rows_tried(case.rows())
    if len(rows) < _FEWEST_ROWS:
        return []
    now = _ece(rows.judged, rows, case.evaluation.bins)
    if now.withheld is not None:
        return []
    found: list[Tried] = []
    for trial in progress(wanted, what="trying remedies", total=len(wanted), unit="remedy"):
        if any(t.mends for t in found if t.remedy.kind in trial.after):
            continue
        try:
            after = trial.logits(rows)
        except CalibrantError:  # a map that these rows do not carry is no remedy
            continue
        ece, change = _ece(after, rows, case.evaluation.bins), nll_change(rows.judged, after, rows.labels, rows.weights)
        if trial.kind == "cross-fit" or _helps(now, ece, change):
            remains = left_off(case, causes, rows, after, margin=margin)
            remedy = _remedy(trial, now, ece, change, rows, margin, remains)
            left = (ece.true_error or 0.0) / now.true_error if now.true_error else 0.0
            found.append(Tried(remedy, trial.against, -change.mean, left))
    return found


def _helps(now: Measured, after: Measured, change: Change) -> bool:
    grows = (after.true_error or 0.0) > (now.true_error or 0.0) + 1e-3
    return change.high < 0 and not grows


def _ece(logits: Matrix, rows: JudgedRows, bins: int) -> Measured:
    s = statistics_of(logits, rows.labels).weighted(rows.weights)
    return told(measure_gaps(gap_sample(s, bins), "sum", value=ece_of(s.bins(bins))), s)


def _remedy(
    trial: Trial, now: Measured, ece: Measured, change: Change, rows: JudgedRows, margin: float, left: str | None
) -> Remedy:
    on = f"{len(rows):,} rows" if len(rows) == rows.of else f"{len(rows):,} of the {rows.of:,} rows"
    text = f"{trial.text}: the ECE goes from {figure(now.value)} to {span(ece)}, tried on {on}, each judged by others."
    level = level_of(ece, margin)
    gives = {
        "ece": ece.to_dict(), "nll": change.to_dict(), "level": level if left is None else capped(level),
        "rows": len(rows), "of_rows": rows.of,
    }  # fmt: skip
    return Remedy(trial.kind, trial.command, text if left is None else f"{text} {left}", gives)
