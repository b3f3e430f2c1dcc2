"""What a feedback log says: served rows, expected and realised accuracy, drift. Calls of calibration.monitoring and of
calibrant.calibration on what the log holds; the server's own monitor makes the same calls on the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.feedback import Feedback, Served, read_feedback, segments
from calibrant.artifacts.model_card import ModelCard
from calibrant.calibration import Evaluation, Measured, evaluate
from calibrant.calibration.diagrams.reliability import ReliabilityDiagram, reliability_diagram
from calibrant.calibration.intervals.means import share_interval
from calibrant.calibration.monitoring.alarms import Alarms, AlarmState, Watch, served_log_p
from calibrant.calibration.monitoring.expected_accuracy import ExpectedAccuracy, expected_accuracy, held_out_gap
from calibrant.calibration.monitoring.rolling import LabelledRow, Rolling, rolling
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.calibration.statistics.statistics import Statistics
from calibrant.calibration.verdict.served import served_verdict
from calibrant.calibration.verdict.verdict import Verdict
from calibrant.dashboard.folder.artifacts import Model
from calibrant.dashboard.folder.contents import card_of
from calibrant.dashboard.folder.files import Stamp, stamp
from calibrant.dashboard.folder.hashes import sha256
from calibrant.dashboard.numbers import onset
from calibrant.dashboard.numbers.onset import Onset
from calibrant.errors import FormatError

MOST_WINDOWS = 40
FEWEST_ROWS = 50  # a window
LARGE_LOG = 64 << 20


@dataclass(frozen=True)
class Latency:
    """Milliseconds in the server, queue included, that so many answers took at most."""

    half: float
    p95: float
    p99: float


@dataclass(frozen=True)
class Window:
    first: int
    last: int  # rows, counted from 1
    time: float  # of the last row
    expected: ExpectedAccuracy
    labelled: int
    realised: Measured | None
    latency: Latency | None  # None where the log does not say


@dataclass(frozen=True)
class Labelled:
    """The rows whose label has arrived."""

    rows: int
    evaluation: Evaluation
    statistics: Statistics

    def diagram(self, bins: int) -> ReliabilityDiagram:
        return reliability_diagram(self.statistics, bins)


@dataclass(frozen=True)
class Recent:
    """The server's rolling figures: of the last rows, and of the last labels, since it began to watch."""

    rows: int
    expected: ExpectedAccuracy
    labelled: Rolling | None
    expected_of_labelled: ExpectedAccuracy | None  # what would have been said of them without their labels


@dataclass(frozen=True)
class Traffic:
    """Arrays in order of time."""

    rows: int
    times: NDArray[np.float64]
    confidence: NDArray[np.float64]
    predicted: NDArray[np.int64]
    labels: NDArray[np.int64]  # -1: not known
    order: NDArray[np.int64]  # where each row stands in the log
    latency: Latency | None
    windows: tuple[Window, ...]
    labelled: Labelled | None
    recent: Recent
    alarms: Mapping[str, AlarmState]
    onsets: Mapping[str, Onset]  # of the alarms that have fired: since when
    verdict: Verdict  # as the server says it


@dataclass(frozen=True)
class Part:
    """Labelled rows of a span of time: what their answers claimed, and how often they were right."""

    rows: int
    claimed: float
    realised: Measured


def part(found: Traffic, start: float, end: float) -> Part | None:
    """Of the labelled rows served from `start` until before `end`; None where there is none."""
    inside = (found.times >= start) & (found.times < end) & (found.labels >= 0)
    n = int(inside.sum())
    if not n:
        return None
    right = float((found.predicted[inside] == found.labels[inside]).mean())
    return Part(n, float(found.confidence[inside].mean()), Measured(right, *share_interval(right, n)))


def log_stamps(folder: Path) -> tuple[Stamp, ...]:
    return tuple(stamp(p) for p in segments(folder))


@lru_cache(2)
def read(folder: Path, files: tuple[Stamp, ...]) -> Feedback:
    """The log as it is; a line that the server is writing at this moment is left for the next time."""
    try:
        return read_feedback(folder)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"is not a feedback log ({type(error).__name__})", where=folder.name) from None


@lru_cache(4)
def summary(folder: Path, files: tuple[Stamp, ...], sha256: str, model: Stamp | None) -> Traffic | None:
    """Of one served file in a log; None where the log does not hold it. `model`: the deployed file, if it is here."""
    served = next((s for s in read(folder, files).served if s.model.sha256 == sha256), None)
    if served is None or not len(served.ids):
        return None
    return summarise(served, None if model is None else card_of(model))


def summarise(served: Served, card: ModelCard | None) -> Traffic:
    order = np.argsort(served.times, kind="stable")
    times, labels, took = served.times[order], served.labels[order], served.latency_ms[order]
    logits = served.logits[order].astype(np.float64)
    log_p = served_log_p(logits)
    confidence, predicted = np.exp(log_p.max(axis=1)), log_p.argmax(axis=1)
    gap = held_out_gap(card)
    known = np.flatnonzero(labels >= 0)
    labelled = None
    if len(known):
        statistics = statistics_of(logits[known], labels[known])
        labelled = Labelled(len(known), evaluate(statistics, class_names=served.model.classes), statistics)
    recent, alarms, onsets, verdict = _as_watched(served, log_p, order, gap)
    return Traffic(
        len(labels),
        times,
        confidence,
        predicted,
        labels,
        order,
        latency_of(took),
        _windows(times, confidence, predicted, labels, took, *gap),
        labelled,
        recent,
        alarms,
        onsets,
        verdict,
    )


def _as_watched(
    served: Served, log_p: NDArray[np.float64], order: NDArray[np.int64], gap: tuple[float, float]
) -> tuple[Recent, Mapping[str, AlarmState], Mapping[str, Onset], Verdict]:
    """What the server's monitor has seen since it began: rows in order of time, labels in the order of their arrival.

    log_p: rows in `order`.
    """
    watch = watch_of(served)
    alarms = Alarms(log_p.shape[1], watch)
    since = served.times[order] >= watch.since
    answered, when, scores = log_p[since], served.times[order][since], served.scores[order][since]
    if len(served.again.times):  # the server counts a request that came twice as two, and labels one
        times, logits = served.traffic
        now = np.argsort(times, kind="stable")
        since = times[now] >= watch.since
        answered, when = served_log_p(logits[now].astype(np.float64))[since], times[now][since]
        scores = served.traffic_scores[now][since]
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    arrived = served.arrivals.times >= watch.since
    rows, first = served.arrivals.rows[arrived], served.arrivals.labels[arrived]
    onsets = onset.watch(alarms, answered, when, log_p[place[rows]], first, served.times[rows], scores)
    window = [LabelledRow.of(log_p[place[row]], int(served.labels[row])) for row in rows[-watch.window :]]
    answered = (answered if len(answered) else log_p)[-watch.window :]

    def expected(confidence: NDArray[np.float64]) -> ExpectedAccuracy:
        return expected_accuracy(confidence, gap=gap[0], gap_variance=gap[1])

    recent = Recent(
        len(answered),
        expected(np.exp(answered.max(axis=1))),
        rolling(window),
        expected(np.array([row.confidence for row in window])) if window else None,
    )
    states = alarms.states()
    return recent, states, onsets, served_verdict(window, states)


def watch_of(served: Served) -> Watch:
    """How the server watched these rows, as it wrote into the log."""
    try:
        return Watch.from_dict(served.model.watch)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            f"does not say how {served.model.name} is watched ({type(error).__name__})", where="feedback log"
        ) from None


def _windows(
    times: NDArray[np.float64],
    confidence: NDArray[np.float64],
    predicted: NDArray[np.int64],
    labels: NDArray[np.int64],
    took: NDArray[np.float32],
    gap: float,
    gap_variance: float,
) -> tuple[Window, ...]:
    count = max(1, min(MOST_WINDOWS, len(times) // FEWEST_ROWS))
    found = []
    for rows in np.array_split(np.arange(len(times)), count):
        known = rows[labels[rows] >= 0]
        realised = None
        if len(known) >= 10:
            share = float((predicted[known] == labels[known]).mean())
            realised = Measured(share, *share_interval(share, len(known)))
        found.append(
            Window(
                int(rows[0]) + 1,
                int(rows[-1]) + 1,
                float(times[rows[-1]]),
                expected_accuracy(confidence[rows], gap=gap, gap_variance=gap_variance),
                len(known),
                realised,
                latency_of(took[rows]),
            )
        )
    return tuple(found)


def latency_of(milliseconds: NDArray[np.float32]) -> Latency | None:
    known = milliseconds[np.isfinite(milliseconds)]
    return Latency(*np.quantile(known, (0.5, 0.95, 0.99)).tolist()) if len(known) else None


def matching(models: tuple[Model, ...], served: Served) -> Model | None:
    """The deployed file that made the predictions, by its hash; else one that was it, but for its card."""
    wanted = served.model.sha256
    exact = next((m for m in models if sha256(stamp(m.path)) == wanted), None)
    alike = (m for m in models if m.card.classes == served.model.classes and wanted in _answering_alike(m.card))
    return exact or next(alike, None)


def _answering_alike(card: ModelCard) -> set[str]:
    """Hashes of the files that this one was since it last answered otherwise: thresholds and names lie in its card."""
    found = set[str]()
    for entry in reversed(card.history):
        if "from_file" not in entry:
            break
        found.add(str(entry["from_file"]))
    return found
