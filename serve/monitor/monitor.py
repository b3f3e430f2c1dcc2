"""Keeps an eye on one served model: logs its answers, takes labels when they come, raises alarms.

The event loop hands over logits and ids and goes on; a thread of the monitor's own does everything else twice a
second: the log, the windows, the alarms. A kill -9 loses at most what was handed over since then; a power cut at most
what was written since the last sync, a second ago.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts import feedback
from calibrant.artifacts.feedback_logits import Kept
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.artifacts.model_card import ModelCard
from calibrant.calibration.monitoring.alarms import Alarms, served_log_p
from calibrant.calibration.monitoring.baseline import KnownRows
from calibrant.calibration.monitoring.canary import Labelled
from calibrant.calibration.monitoring.rolling import LabelledRow
from calibrant.calibration.verdict.served import served_verdict
from calibrant.calibration.verdict.verdict import Verdict
from calibrant.serve.engine import prediction_sets
from calibrant.serve.engine.deployed_formula import DeployedFormula
from calibrant.serve.monitor.baseline import watch_of
from calibrant.serve.monitor.config import MonitorConfig
from calibrant.serve.monitor.features import Rows, ServedFeatures
from calibrant.serve.monitor.labels import Labels, Reply
from calibrant.serve.monitor.log.history import History
from calibrant.serve.monitor.log.output import LogOutput
from calibrant.serve.monitor.recent_rows import RecentRows, rows_kept
from calibrant.serve.monitor.report import Tally, class_shares, report, summary
from calibrant.serve.monitor.taking import take_labels
from calibrant.serve.monitor.window import Window

log = logging.getLogger(__name__)

MOST_PENDING = 200_000  # requests that wait for the thread

_Handed = tuple[str, float, NDArray[np.float32], float | None, Rows | None]  # id, time, logits, seconds, features


class Monitor:
    """One per model file. `record` from the event loop; `label`, `report` from any thread."""

    def __init__(
        self,
        model: feedback.Model,
        card: ModelCard,
        config: MonitorConfig,
        writer: FeedbackWriter | None,
        *,
        alarm: Callable[[str], None] | None = None,
        counts: bool = True,
        given: KnownRows | None = None,
        features: ServedFeatures | None = None,
        history: History | None = None,
    ) -> None:
        """`counts=False`: only writes the log, for another process to watch. `given`: rows that count as normal for the
        calibration alarm; without them it learns what is normal from the first labels. `history`: shared by the files
        of a model; its own unless given."""
        watch = watch_of(config, given, features)
        self.model = replace(model, watch=watch.to_dict()) if counts else model
        self.features = features  # None unless they were asked for
        self.card, self.config, self.writer, self.counts = card, config, writer, counts
        self._say = alarm or (lambda text: log.warning("%s", text))
        self._pending: deque[_Handed] = deque()
        self._lock = threading.RLock()
        self._recent = RecentRows(rows_kept(len(model.classes)))
        self.window = Window(config.window, len(model.classes), card, given)
        self.alarms = Alarms(len(model.classes), watch)
        self.history = history or History(None if writer is None else writer.folder)
        self.history.served_by(model.sha256, model.classes)
        self.trial: Labelled | None = None  # rows with a label, while a canary runs
        self.rows = self.labels = 0
        self.not_finite = 0  # rows whose answer was no distribution
        self._unsaved = 0  # rows that came while the disk hung
        self._kept = Kept() if writer is None else writer.kept
        self.cut = self._kept.cuts(len(model.classes))
        # Of a row that was cut to its largest nobody knows what is in its set.
        self._quantile = None if self.cut else _some_quantile(card)
        self._redo = DeployedFormula.of(card)
        self.output = None if writer is None else LogOutput(writer, self.model)
        if self.output is not None and counts:
            self.output.describe()

    @property
    def lost(self) -> int:
        """Rows that the log could not take."""
        return self._unsaved + (0 if self.output is None else self.output.lost)

    # ---- from the event loop

    def record(
        self,
        id_: str,
        logits: NDArray[np.float32],
        seconds: float | None = None,
        features: NDArray[Any] | None = None,
    ) -> None:
        """logits (rows, C) and features as the file returned them; copied, because they may be a part of a whole batch.
        `seconds`: how long the request waited and ran."""
        if len(self._pending) >= MOST_PENDING:  # the disk hangs
            self._unsaved += len(logits)
            return
        kept = None if self.features is None else self.features.taken(features, len(logits), len(self._pending))
        self._pending.append((id_, time.time(), np.array(logits, np.float32), seconds, kept))

    # ---- the monitor's own thread

    def flush(self) -> None:
        """Takes what was handed over: writes it to the log, then counts it."""
        with self._lock:  # from the first row taken: who asks for a row meanwhile must wait for it
            taken: list[_Handed] = []
            while self._pending:
                taken.append(self._pending.popleft())
            taken = self._finite(taken)
            if not taken:
                return
            logits = np.concatenate([row[2] for row in taken]).astype(np.float32, copy=False)
            ids = [name for id_, _, block, *_ in taken for name in row_ids(id_, len(block))]
            times = [round(at, 3) for _, at, block, *_ in taken for _ in range(len(block))]
            took = [None if s is None else round(1e3 * s, 3) for *_, block, s, _ in taken for _ in range(len(block))]
            scores = None if self.features is None else self.features.scores([(len(r[2]), r[4]) for r in taken])
            if self.output is not None:
                place = self.output.predictions(ids, times, logits, took, scores)
                if place is not None and self.counts:
                    self.history.logged(*place, ids)
            if self.counts:  # what any other reader of the log will count: one row, one number
                self._count(ids, self._kept.seen(logits), scores)

    def _finite(self, taken: list[_Handed]) -> list[_Handed]:
        """Without requests whose answer is no distribution. Absurd inputs make such; one would stay in every sum."""
        good = []
        for row in taken:
            top = row[2].max(axis=1, initial=-np.inf)
            if np.isfinite(top).all():  # -inf for some classes is a model that rules them out; NaN is a top of NaN
                good.append(row)
            else:
                self.not_finite += len(row[2])
        return good

    def take_in(
        self, path: Path, offset: int, ids: list[str], logits: NDArray[np.float32], scores: Rows | None = None
    ) -> None:
        """Rows that another process predicted and wrote to this place of the log."""
        with self._lock:
            self.history.logged(path, offset, ids)
            self._count(ids, logits, scores)

    def _count(self, ids: list[str], logits: NDArray[np.float32], scores: Rows | None) -> None:
        log_p = served_log_p(logits)
        self.rows += len(ids)
        self.window.answered(log_p)
        self._recent.add(ids, log_p)
        confidences_drifted, mix_drifted = self.alarms.answered(log_p)
        if confidences_drifted:
            self._say(
                f"{self._name}: the confidences have drifted from those of the first rows (row {self.rows}). "
                f"{self._verdict().sentence}"
            )
        if mix_drifted:
            self._say(
                f"{self._name}: the mix of predicted classes has drifted (row {self.rows}). {self._verdict().sentence}"
            )
        if scores is not None and self.alarms.featured(scores):
            self._say(
                f"{self._name}: the features have drifted, whatever the confidences say (row {self.rows}). "
                f"{self._verdict().sentence}"
            )

    # ---- labels

    def label(self, given: Labels) -> Reply:
        """Labels of what this file answered. Where several files answered, `take_labels` finds the one."""
        return take_labels([self], given)

    def recent(self, id_: str) -> NDArray[np.float32] | None:
        """What was served under the id, if it is among the newest rows."""
        with self._lock:
            return self._recent.get(id_)

    def take(self, id_: str, log_p: NDArray[np.float32], label: int) -> None:
        """The first label of a row."""
        with self._lock:
            row = self._labelled(log_p, label)
            self.window.labelled(id_, row)
            if self.trial is not None:
                self.trial.took(row.confidence, row.correct)
            self.labels += 1
            if self.alarms.labelled(log_p[None], np.array([label])):
                self._say(
                    f"{self._name}: the confidences no longer match the labels (alarm after {self.labels} labels). "
                    f"{self._verdict().sentence}"
                )

    def correct(self, id_: str, log_p: NDArray[np.float32], label: int) -> None:
        """Another label of a row that has one."""
        with self._lock:
            if self.window.holds(id_):
                self.window.labelled(id_, self._labelled(log_p, label))

    def forget_recent(self) -> None:
        """The rows in memory; the log is looked up from now on."""
        with self._lock:
            self._recent = RecentRows(self._recent.most)

    def _verdict(self) -> Verdict:
        return served_verdict(self.window.labelled_rows(), self.alarms.states())

    def _labelled(self, served: NDArray[np.float32], label: int) -> LabelledRow:
        log_p = served.astype(np.float64)
        covered = math.nan
        if self._quantile is not None:
            outputs = {"logits": log_p[None]}
            sets = prediction_sets.prediction_sets(
                self.card, self._redo.conformal_probabilities(outputs), self._quantile
            )
            covered = float(sets[0, label])
        return LabelledRow.of(log_p, label, covered)

    # ---- what it found

    def locked(self) -> threading.RLock:
        """For who reads several figures that belong together."""
        return self._lock

    @property
    def _name(self) -> str:
        return f"{self.model.name} version {self.model.version}"

    def report(self) -> dict[str, Any]:
        """GET /v2/models/M/monitor."""
        self.flush()
        with self._lock:
            baseline = self.alarms.calibration.baseline
            return report(
                self.model,
                Tally(self.rows, self.labels, len(self.history.chosen), self.not_finite, self.lost),
                self.window,
                self.alarms.states(),
                baseline_rows=0 if baseline is None else baseline.rows,
                nominal_coverage=self._quantile,
                logits_kept=self.cut,
                features=None if self.features is None else self.features.to_dict(),
            )

    def class_shares(self) -> dict[str, Any] | None:
        """How often each class occurs among the last rows, without labels; None where no labelled rows were given."""
        follower = self.window.served_prior
        if follower is None:
            return None
        with self._lock:
            rows = follower.rows()
        return class_shares(follower, rows, self.model.classes, cut=self.cut)

    def summary(self) -> dict[str, Any]:
        """The figures by which versions are compared."""
        return summary(self.report())


def row_ids(id_: str, rows: int) -> list[str]:
    """The request id for one row; with the number of the row behind it where there are more."""
    return [id_] if rows == 1 else [f"{id_}/{n}" for n in range(rows)]


def _some_quantile(card: ModelCard) -> float | None:
    """The coverage to watch: 0.9 where the file has it, else the highest."""
    known = prediction_sets.coverages(card)
    return 0.9 if 0.9 in known else (known[-1] if known else None)
