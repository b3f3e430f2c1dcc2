"""How figures are said: in points, with no more digits than they carry."""

from __future__ import annotations

from calibrant.calibration.intervals.measured import Measured


def figure(share: float) -> str:
    """Whole points from ten on, tenths below."""
    value = 100 * share
    return f"{value:.0f}" if abs(value) >= 9.95 else f"{value:.1f}".removesuffix(".0")


def points(share: float) -> str:
    return f"{figure(share)} point{'' if figure(share) in ('1', '-1') else 's'}"


def more_or_less(gap: float) -> str:
    """What a claim is beside the truth: 11 points more than it is right."""
    return f"{points(abs(gap))} {'more' if gap > 0 else 'less'} than it is right"


def span(ece: Measured) -> str:
    """2 % (0 to 3.1; chance explains 1.8). An interval that is a point is not said: it is an accident."""
    limits = ""
    if ece.low is not None and ece.high is not None and figure(ece.high) != "0":
        limits = f"{figure(ece.low)} to {figure(ece.high)}; "
    return f"{figure(ece.value)} % ({limits}chance explains {figure(ece.null or 0.0)})"
