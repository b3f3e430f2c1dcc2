"""The one sentence: the level, the first cause, and how large the error is."""

from __future__ import annotations

from collections.abc import Sequence

from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.verdict.verdict import WORDS, Cause, Level
from calibrant.calibration.verdict.words import figure, points


def sentence(level: Level, ece: Measured, causes: Sequence[Cause], rows: int) -> str:
    counted = f"{rows:,} row{'s' if rows != 1 else ''}"
    if ece.low is None or ece.high is None:
        return f"{WORDS[level]} with {counted}."
    named = [c for c in causes if c.kind != "too-few-rows"]
    because = f"{_inside(named[0].text)}; " if named else ""
    if level == "unknown":
        span = f"the error of its confidence may be anything from {figure(ece.low)} to {points(ece.high)}"
        return f"{WORDS[level]} with these {counted}: {because}{span}."
    off = f"at most {points(ece.high)}" if figure(ece.high) != "0" else "less than 0.1 points"
    if level == "not-trusted":
        off = f"{figure(ece.low)} to {points(ece.high)}"
    return f"{WORDS[level]}: {because}its confidence is off by {off} on average ({counted})."


def _inside(text: str) -> str:
    """The first sentence of a text, as a part of another."""
    first = text.split(". ")[0].removesuffix(".")
    return first[0].lower() + first[1:]
