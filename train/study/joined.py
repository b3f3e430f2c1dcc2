"""The joined table of a study: one row per method, with differences to the reference that know what noise is.

Two things are drawn by chance: the seed of a training and the images of the test set. Where a metric is a mean over
rows (accuracy, NLL, Brier score; the ECE to first order) the interval of a difference knows both (two-way t); where it
is not, it knows the seeds alone. Every estimate says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.crossed import crossed_mean
from calibrant.calibration.intervals.means import mean_interval
from calibrant.train.jobs.rows import differences
from calibrant.train.study.score import Score, higher_is_better

Vector = NDArray[np.float64]
Noise = Literal["seeds and images", "images", "seeds", "none", ""]


@dataclass(frozen=True)
class Estimate:
    """A metric of a method: mean and deviation over seeds; difference to the reference, paired, with its interval.

    noise: what the interval knows of; "none" where no row differs, so that the difference is 0 and nothing else.
    mark: best or second, where it is clearly ahead of the next one.
    """

    mean: float
    deviation: float
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    noise: Noise = ""
    rank: float | None = None
    rank_low: float | None = None
    rank_high: float | None = None
    mark: Literal["", "best", "second"] = ""


@dataclass(frozen=True)
class MethodLine:
    method: str
    control: str
    estimates: dict[str, Estimate]
    measured: dict[str, float]  # numbers that the loss or the network told, mean over seeds
    published: dict[str, float]


@dataclass(frozen=True)
class Block:
    """Methods on the same data, network and seeds, through the same calibrator."""

    data: str
    network: str
    view: str  # "", or the calibrator
    seeds: tuple[int, ...]
    images: int
    lines: tuple[MethodLine, ...]


@dataclass(frozen=True)
class Joined:
    title: str
    scale: str
    reference: str
    metrics: tuple[str, ...]
    blocks: tuple[Block, ...]
    finished: int
    total: int
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "study", "format_version": 1, **asdict(self)}


@dataclass(frozen=True)
class Entry:
    """A method and its scores by seed."""

    method: str
    scores: Mapping[int, Score]
    control: str = ""
    measured: Mapping[int, Mapping[str, float]] | None = None
    published: Mapping[str, float] | None = None


def join(
    entries: Sequence[Entry], metrics: Sequence[str], *, reference: str, data: str, network: str, view: str
) -> Block | None:
    """The block of all methods that have runs, on the seeds that all of those have; None without such a seed."""
    there = [e for e in entries if e.scores]
    if not there:
        return None
    seeds = tuple(sorted(set.intersection(*(set(e.scores) for e in there))))
    if not seeds:
        return None
    base = next((e for e in there if e.method == reference), None)
    estimates = {e.method: {m: _estimate(e, base, m, seeds) for m in metrics} for e in there}
    for metric in metrics:
        compared = [e for e in there if not e.control]
        for method, (rank, low, high) in ranks(compared, metric, seeds).items():
            found = estimates[method][metric]
            estimates[method][metric] = replace(found, rank=rank, rank_low=low, rank_high=high)
        for method, mark in marks(compared, metric, seeds).items():
            estimates[method][metric] = replace(estimates[method][metric], mark=mark)
    lines = tuple(
        MethodLine(e.method, e.control, estimates[e.method], _mean_measured(e, seeds), dict(e.published or {}))
        for e in there
    )
    any_rows = next(iter(there[0].scores.values())).rows
    return Block(data, network, view, seeds, _rows_of(any_rows), lines)


def _estimate(entry: Entry, base: Entry | None, metric: str, seeds: Sequence[int]) -> Estimate:
    values = _values(entry, metric, seeds)
    plain = Estimate(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0)
    if base is None or base is entry:
        return plain
    difference, low, high, noise = paired(entry, base, metric, seeds)
    return replace(plain, difference=difference, low=low, high=high, noise=noise)


def paired(
    one: Entry, other: Entry, metric: str, seeds: Sequence[int]
) -> tuple[float, float | None, float | None, Noise]:
    """one minus other: mean over seeds, its 95 % interval, and the noise that the interval knows of."""
    change = _values(one, metric, seeds) - _values(other, metric, seeds)
    mean = float(change.mean())
    rows = differences(metric, [one.scores[s].rows for s in seeds], [other.scores[s].rows for s in seeds])
    if rows is not None:
        if not rows.any():
            return 0.0, 0.0, 0.0, "none"
        found = crossed_mean(rows)
        return mean, found.low, found.high, "seeds and images" if len(seeds) > 1 else "images"
    if len(change) < 2:
        return mean, None, None, ""
    if not change.any():
        return 0.0, 0.0, 0.0, "none"
    low, high = mean_interval(mean, float(change.var(ddof=1)), len(change))
    return mean, low, high, "seeds"


def ranks(
    entries: Sequence[Entry], metric: str, seeds: Sequence[int]
) -> dict[str, tuple[float, float | None, float | None]]:
    """Mean over seeds of each method's rank, 1 the best, ties sharing theirs; with Student's interval over seeds."""
    from scipy.stats import rankdata

    table = np.stack([_values(e, metric, seeds) for e in entries])
    each = rankdata(-table if higher_is_better(metric) else table, axis=0)
    found = {}
    for entry, row in zip(entries, each, strict=True):
        low, high = mean_interval(float(row.mean()), float(row.var(ddof=1)) if len(row) > 1 else 0.0, len(row))
        found[entry.method] = (
            float(row.mean()),
            None if low is None else max(1.0, low),
            None if high is None else min(len(each), high),
        )
    return found


def marks(entries: Sequence[Entry], metric: str, seeds: Sequence[int]) -> dict[str, Literal["best", "second"]]:
    """The best, and the second best, each only where the interval of its lead over the next one leaves 0 out."""
    order = sorted(
        entries, key=lambda e: float(_values(e, metric, seeds).mean()) * (-1 if higher_is_better(metric) else 1)
    )
    found: dict[str, Literal["best", "second"]] = {}
    names: tuple[Literal["best", "second"], ...] = ("best", "second")
    for place, name in enumerate(names):
        if place + 1 >= len(order):
            break
        _, low, high, _ = paired(order[place], order[place + 1], metric, seeds)
        if low is not None and high is not None and (low > 0 or high < 0):
            found[order[place].method] = name
    return found


def _values(entry: Entry, metric: str, seeds: Sequence[int]) -> Vector:
    return np.asarray([entry.scores[s].metrics[metric] for s in seeds], np.float64)


def _mean_measured(entry: Entry, seeds: Sequence[int]) -> dict[str, float]:
    told = [(entry.measured or {}).get(s, {}) for s in seeds]
    names = [name for name in told[0] if all(name in t for t in told)] if told else []
    return {name: float(np.mean([t[name] for t in told])) for name in names}


def _rows_of(block: Mapping[str, Any]) -> int:
    import base64

    return len(base64.b64decode(block["labels"])) // 4
