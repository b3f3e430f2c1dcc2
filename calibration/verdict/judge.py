"""From what an evaluation knows to the verdict."""

from __future__ import annotations

from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.verdict.case import Case
from calibrant.calibration.verdict.excess import Excess
from calibrant.calibration.verdict.level import capped, level_of
from calibrant.calibration.verdict.policy import MARGIN
from calibrant.calibration.verdict.verdict import WORDS, Cause, Level, Verdict

_P = 0.01


def judge(case: Case, *, margin: float = MARGIN) -> Verdict:
    """Level, sentence and causes of one evaluated model."""
    ece, excess = case.evaluation.metrics["ece"], Excess.of(case.statistics)
    level = level_of(ece, margin)
    if case.in_sample or (case.shift is not None and case.shift.clear):
        level = capped(level)
    causes = []
    if level != "trusted" and (cause := confidence_cause(excess)) is not None:
        causes.append(cause)
    return Verdict(level, sentence(level, ece, excess, case.evaluation.rows), tuple(causes))


def confidence_cause(excess: Excess) -> Cause | None:
    if excess.p >= _P:
        return None
    side = "over-confident" if excess.gap > 0 else "under-confident"
    return Cause(
        "over-confident" if excess.gap > 0 else "under-confident",
        f"It is {side}: it {claim(excess)}.",
        {"gap": excess.gap, "chance": excess.chance, "p": excess.p},
    )


def claim(excess: Excess) -> str:
    way = "more" if excess.gap > 0 else "less"
    return f"claims {points(abs(excess.gap))} {way} than it is right; chance explains {figure(excess.chance)}"


def sentence(level: Level, ece: Measured, excess: Excess, rows: int) -> str:
    if ece.low is None or ece.high is None:
        return f"{WORDS[level]} with {rows:,} row{'s' if rows != 1 else ''}."
    if level == "unknown":
        span = f"the error may be anything from {figure(ece.low)} to {points(ece.high)}"
        return f"{WORDS[level]} with these {rows:,} rows: {span}."
    how_much = f"{figure(ece.low)} to" if level == "not-trusted" else "at most"
    span = f"its confidence is off by {how_much} {points(ece.high)} on average ({rows:,} rows)"
    if excess.p < _P and level != "trusted":
        return f"{WORDS[level]}: it {claim(excess)}; {span}."
    return f"{WORDS[level]}: {span}."


def points(share: float) -> str:
    return f"{figure(share)} point{'' if figure(share) == '1' else 's'}"


def figure(share: float) -> str:
    """In points: whole ones from ten on, tenths below."""
    value = 100 * share
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}".removesuffix(".0")
