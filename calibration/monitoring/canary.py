"""Whether a new version may take over: how a canary does beside the version that answers the others.

Who answers a request is drawn at random, so that both versions have the same callers. Five figures are compared:
accuracy and ECE of the rows with labels, requests that failed, answers that were no numbers, and requests slower than
`slower` times what 95 % of the old version's take. Each is looked at whenever the canary's rows have doubled; look k
spends alpha / (5 k (k + 1)) of the chance to be wrong, so all looks together spend less than alpha. The difference of
two figures has the interval

    d - sqrt((p1 - l1)^2 + (u2 - p2)^2) .. d + sqrt((u1 - p1)^2 + (p2 - l2)^2)

of their own ones (Newcombe 1998, method 10; Zou and Donner 2008): Wilson's of shares, and of the ECE the one of
the rolling one, stretched from 95 % to the level as a normal law would be. A figure is worse where the whole interval
lies beyond its margin, and no worse where it ends before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from calibrant.calibration.intervals.binned import measure_gaps
from calibrant.calibration.intervals.gaps import GapSample
from calibrant.calibration.intervals.means import Z95, share_interval
from calibrant.calibration.monitoring.canary_rules import CanaryRules
from calibrant.calibration.monitoring.rolling import ECE_BINS
from calibrant.calibration.statistics.bins import Bins, equal_width_index

FIGURES = ("accuracy", "ece", "failed", "not_finite", "slow")
_OCTAVE = 8  # bins of latency
_SHORTEST, _BINS = 1e-4, 20 * _OCTAVE + 2  # seconds; up to 100 s
_TYPICAL = 0.95  # of the old version's requests
State = Literal["worse", "no worse", "open"]
Decision = Literal["promote", "roll back"]


def latency_bin(seconds: float) -> int:
    """Eight bins an octave from a tenth of a millisecond on."""
    if seconds <= _SHORTEST:
        return 0
    return min(math.ceil(_OCTAVE * math.log2(seconds / _SHORTEST)), _BINS - 1)


@dataclass
class Traffic:
    """Requests of one version that were drawn for it, since the canary began."""

    answered: int = 0
    failed: int = 0  # by the server's fault
    latency: list[int] = field(default_factory=lambda: [0] * _BINS)

    def took(self, seconds: float) -> None:
        self.answered += 1
        self.latency[latency_bin(seconds)] += 1

    def add(self, other: Traffic) -> None:
        self.answered += other.answered
        self.failed += other.failed
        self.latency = [a + b for a, b in zip(self.latency, other.latency, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Traffic:
        return cls(int(values["answered"]), int(values["failed"]), [int(n) for n in values["latency"]])


@dataclass
class Labelled:
    """Rows with a label, in the bins of the rolling ECE: so many numbers, however long a canary runs."""

    bins: Bins = field(default_factory=lambda: Bins(np.zeros(ECE_BINS, np.int64), *np.zeros((3, ECE_BINS))))

    def __len__(self) -> int:
        return int(self.bins.rows.sum())

    @property
    def correct(self) -> int:
        return round(float(self.bins.correct_sum.sum()))

    def took(self, confidence: float, correct: bool) -> None:
        at = equal_width_index(np.array([confidence]), ECE_BINS)[0]
        self.bins.rows[at] += 1
        self.bins.weight[at] += 1
        self.bins.confidence_sum[at] += confidence
        self.bins.correct_sum[at] += correct

    def copy(self) -> Labelled:
        bins = self.bins
        return Labelled(Bins(bins.rows.copy(), bins.weight.copy(), bins.confidence_sum.copy(), bins.correct_sum.copy()))


@dataclass(frozen=True)
class Version:
    """What is known of one of the two. `alarm`: whether its calibration alarm is on."""

    traffic: Traffic
    rows: int = 0
    not_finite: int = 0
    labelled: Labelled = field(default_factory=Labelled)
    alarm: bool = False


@dataclass(frozen=True)
class Finding:
    """Canary minus old of one figure, at the last look; margin: how much worse it may be."""

    figure: str
    old: float
    canary: float
    low: float
    high: float
    margin: float
    rows: int

    @property
    def state(self) -> State:
        low, high = (-self.high, -self.low) if self.figure == "accuracy" else (self.low, self.high)
        return "worse" if low > self.margin else "no worse" if high <= self.margin else "open"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "state": self.state}


@dataclass(frozen=True)
class Judgement:
    decision: Decision | None
    reason: str
    findings: tuple[Finding, ...]


class CanaryTrial:
    """Of one canary. `look` as often as one likes."""

    def __init__(self, rules: CanaryRules) -> None:
        self.rules = rules
        self._looks: dict[str, int] = {}
        self._found: dict[str, Finding] = {}

    @property
    def figures(self) -> tuple[str, ...]:
        return FIGURES if self.rules.labels else FIGURES[2:]

    def look(self, old: Version, canary: Version) -> Judgement:
        from statistics import NormalDist  # 1 MB that servers without a canary do without

        for figure in self.figures:
            rows = (_rows(figure, old), _rows(figure, canary))
            k = self._due(figure, min(rows))
            if k is not None:
                z = NormalDist().inv_cdf(1 - self.rules.alpha / (len(FIGURES) * k * (k + 1)) / 2)
                first, second = _measure(figure, old, canary, self.rules)
                low, high = _difference(first(z), second(z))
                margin = self._margin(figure)
                self._found[figure] = Finding(figure, first(z)[0], second(z)[0], low, high, margin, rows[1])
        return self._judge(old, canary)

    def _due(self, figure: str, rows: int) -> int | None:
        """The number of the look that is due; with ten times the canary's share old ones are never fewer for long."""
        first = self.rules.labels if figure in ("accuracy", "ece") else self.rules.requests
        k = int(math.log2(rows / first)) + 1 if rows >= first else 0
        if k <= self._looks.get(figure, 0):
            return None
        self._looks[figure] = k
        return k

    def _margin(self, figure: str) -> float:
        rules = self.rules
        known = {"accuracy": rules.accuracy_loss, "ece": rules.ece_gain, "slow": rules.slow_gain}
        return known.get(figure, rules.failed_gain)

    def _judge(self, old: Version, canary: Version) -> Judgement:
        found = tuple(self._found[figure] for figure in self.figures if figure in self._found)
        worse = [f for f in found if f.state == "worse"]
        if worse:
            return Judgement("roll back", _said(worse[0], self.rules), found)
        if canary.alarm and not old.alarm:
            return Judgement("roll back", "its calibration alarm is on, and that of the old version is not", found)
        if len(found) == len(self.figures) and all(f.state == "no worse" for f in found):
            return Judgement("promote", "; ".join(_said(f, self.rules) for f in found[:2]), found)
        waits = [figure for figure in self.figures if figure not in self._found]
        unsure = [f.figure for f in found if f.state == "open"]
        return Judgement(None, f"to be seen: {', '.join(_NAMES[f] for f in [*waits, *unsure])}", found)


_NAMES = {
    "accuracy": "accuracy", "ece": "ECE", "failed": "failed requests", "not_finite": "answers that are no numbers",
    "slow": "slow requests",
}  # fmt: skip


def _said(f: Finding, rules: CanaryRules) -> str:
    name = _NAMES[f.figure]
    if f.figure == "slow":
        name = f"requests slower than {rules.slower:g} times 95 % of the old version's"
    return (
        f"{name} {100 * f.canary:.1f} % against {100 * f.old:.1f} %, difference {100 * f.low:+.1f} to "
        f"{100 * f.high:+.1f} points over {f.rows:,} {'labels' if f.figure in ('accuracy', 'ece') else 'requests'}"
    )


_Limits = Callable[[float], tuple[float, float, float]]  # value, low, high at a z


def _rows(figure: str, version: Version) -> int:
    if figure in ("accuracy", "ece"):
        return len(version.labelled)
    traffic = version.traffic
    return {"failed": traffic.answered + traffic.failed, "slow": traffic.answered}.get(figure, version.rows)


def _measure(figure: str, old: Version, canary: Version, rules: CanaryRules) -> tuple[_Limits, _Limits]:
    if figure == "ece":
        return _ece(old.labelled), _ece(canary.labelled)
    if figure == "accuracy":
        hits = [old.labelled.correct, canary.labelled.correct]
    elif figure == "failed":
        hits = [old.traffic.failed, canary.traffic.failed]
    elif figure == "not_finite":
        hits = [old.not_finite, canary.not_finite]
    else:
        typical = int(np.searchsorted(np.cumsum(old.traffic.latency), _TYPICAL * old.traffic.answered))
        late = typical + round(_OCTAVE * math.log2(rules.slower))
        hits = [sum(old.traffic.latency[typical + 1 :]), sum(canary.traffic.latency[late + 1 :])]
    first, second = (_share(n, _rows(figure, v)) for n, v in zip(hits, (old, canary), strict=True))
    return first, second


def _share(hits: int, rows: int) -> _Limits:
    return lambda z: (hits / rows, *share_interval(hits / rows, rows, z=z))


def _ece(rows: Labelled) -> _Limits:
    found = measure_gaps(GapSample.of(rows.bins), "sum")
    value = found.value if found.true_error is None else found.true_error
    low, high = found.low or 0.0, 1.0 if found.high is None else found.high
    value = min(max(value, low), high)
    return lambda z: (value, max(0.0, value - z / Z95 * (value - low)), min(1.0, value + z / Z95 * (high - value)))


def _difference(old: tuple[float, float, float], canary: tuple[float, float, float]) -> tuple[float, float]:
    """Canary minus old."""
    d = canary[0] - old[0]
    return (
        d - math.hypot(canary[0] - canary[1], old[2] - old[0]),
        d + math.hypot(canary[2] - canary[0], old[0] - old[1]),
    )
