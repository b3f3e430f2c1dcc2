"""The level, from the interval of the calibration error and a margin."""

from __future__ import annotations

from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.verdict.verdict import Level


def level_of(ece: Measured, margin: float) -> Level:
    """With [lo, hi] the 95 % interval of the true error and m the margin:

    lo > m not trusted, hi <= m trusted, hi <= 2 m usable with care, else it cannot be told. What chance alone explains
    must be as small as hi: a lucky handful of rows is no proof.
    """
    if ece.low is None or ece.high is None:
        return "unknown"
    if ece.low > margin:
        return "not-trusted"
    high = max(ece.high, ece.null or 0.0)
    if high <= margin:
        return "trusted"
    return "care" if high <= 2 * margin else "unknown"


def capped(level: Level) -> Level:
    """At best usable with care."""
    return "care" if level == "trusted" else level
