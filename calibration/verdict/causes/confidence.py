"""Claims that are too large or too small as a whole, and rows that are too few to tell."""

from __future__ import annotations

from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.verdict.causes.excess import Excess
from calibrant.calibration.verdict.causes.where import Range
from calibrant.calibration.verdict.verdict import Cause, Level
from calibrant.calibration.verdict.words import figure, more_or_less, points

P = 0.01


def excess_cause(excess: Excess, worst: Range | None = None) -> Cause | None:
    """The mean claim against the share right: z test at .01. `worst`: where most of it lies, if in one place."""
    if excess.p >= P or not excess.gap:
        return None
    return Cause(
        "over-confident" if excess.gap > 0 else "under-confident",
        f"It claims {more_or_less(excess.gap)}; chance explains {figure(excess.chance)}."
        + ("" if worst is None else f" {worst.words}"),
        {
            "gap": excess.gap, "chance": excess.chance, "p": excess.p,
            **({} if worst is None else {"worst": worst.to_dict()}),
        },
    )  # fmt: skip


def halves_cause(over: Measured, under: Measured) -> Cause:
    """Too much at some confidences and too little at others, which cancel in the mean: named by the larger half."""
    more, less = (m.value if m.true_error is None else m.true_error for m in (over, under))
    text = (
        f"It claims too much at some confidences and too little at others: {points(more)} of the error lie above the "
        f"truth, {points(less)} below."
    )
    return Cause("over-confident" if more >= less else "under-confident", text, {"over": more, "under": less})


def few_rows_cause(level: Level, ece: Measured, rows: int) -> Cause | None:
    """Where more rows could change the level: the error may be none at all, or more than twice the margin."""
    if ece.withheld is not None:
        return Cause("too-few-rows", f"Nothing can be told: {ece.withheld}.", {"rows": rows})
    if ece.low is None or ece.high is None:
        return Cause("too-few-rows", f"{rows:,} row{'s say' if rows != 1 else ' says'} nothing.", {"rows": rows})
    if level == "unknown" or (level == "care" and ece.low == 0):
        return Cause(
            "too-few-rows",
            f"With {rows:,} rows the error may be anything from {figure(ece.low)} to {points(ece.high)}.",
            {"rows": rows, "low": ece.low, "high": ece.high},
        )
    return None
