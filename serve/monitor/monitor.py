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
from calibrant.artifacts.feedback_records import CHOSEN
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
from calibrant.serve.monitor.known_labels import KnownLabels
from calibrant.serve.monitor.labels import Labels, Reply
from calibrant.serve.monitor.log_output import LogOutput
from calibrant.serve.monitor.report import Tally, class_shares, report, summary
from calibrant.serve.monitor.served_rows import ServedRows
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
    ) -> None:
        """`counts=False`: only writes the log, for another process to watch. `given`: rows that count as normal for the
        calibration alarm; without them it learns what is normal from the first labels."""
        watch = watch_of(config, given, features)
        self.model = replace(model, watch=watch.to_dict()) if counts else model
        self.features = features  # None unless they were asked for
        self.card, self.config, self.writer, self.counts = card, config, writer, counts
        self._say = alarm or (lambda text: log.warning("%s", text))
        self._pending: deque[_Handed] = deque()
        self._lock = threading.RLock()
        self.served_rows = ServedRows(model)
        self.window = Window(config.window, len(model.classes), card, given)
        self.alarms = Alarms(len(model.classes), watch)
        self.restored = threading.Event()  # labels wait while an earlier log is read
        self.restored.set()
        folder = None if writer is None else writer.folder
        self._known_labels = KnownLabels(folder)
        self._chosen_labels = KnownLabels(folder)  # of rows that are no random sample
        self.trial: Labelled | None = None  # rows with a label, while a canary runs
        self.rows = self.labels = 0
        self.not_finite = 0  # rows whose answer was no distribution
        self._unsaved = 0  # rows that came while the disk hung
        self._kept = Kept() if writer is None else writer.kept
        self.cut = self._kept.cuts(len(model.classes))
        # Of a row that was cut to its largest nobody knows what is in its set.
        self._quantile = None if self.cut else _some_quantile(card)
        self._redo = DeployedFormula.of(card)
        self._output = None if writer is None else LogOutput(writer, self.model)
        if self._output is not None and counts:
            self._output.describe()

    @property
    def lost(self) -> int:
        """Rows that the log could not take."""
        return self._unsaved + (0 if self._output is None else self._output.lost)

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
            if self._output is not None:
                place = self._output.predictions(ids, times, logits, took, scores)
                if place is not None and self.counts:
                    self.served_rows.logged(*place, ids)
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
            self.served_rows.logged(path, offset, ids)
            self._count(ids, logits, scores)

    def _count(self, ids: list[str], logits: NDArray[np.float32], scores: Rows | None) -> None:
        log_p = served_log_p(logits)
        self.rows += len(ids)
        self.window.answered(log_p)
        self.served_rows.add(ids, log_p)
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
        """Takes true labels; the same again changes nothing, another one replaces the first in the log and in the
        window. An alarm goes by what was said first."""
        reply = Reply()
        self.restored.wait(60)
        self.flush()
        ids, labels = given.ids, given.labels
        if given.chosen:
            with self._lock:
                ids, labels = self._keep_chosen(given, reply)
        fresh: dict[str, int] = {}
        rows: dict[str, NDArray[np.float32]] = {}
        with self._lock:
            for id_, label in zip(ids, labels, strict=True):
                known = fresh.get(id_, self._known_labels.get(id_))
                row = self.served_rows.find(id_) if known is None else None
                if known == label:
                    reply.note(id_, "repeated")
                elif known is None and row is None:
                    reply.note(id_, "unknown")
                else:
                    reply.note(id_, "accepted" if known is None else "changed")
                    if row is not None and row.log_p is not None:
                        rows[id_] = row.log_p
                    fresh[id_] = label
            # First the log: what it cannot keep must not count, or the caller's second try would be a repetition.
            if self._output is not None and fresh:
                self._output.labels(list(fresh), list(fresh.values()), chosen=False)
            self._known_labels.update(fresh)
            for id_ in fresh:
                self._chosen_labels.discard(id_)
            for id_, label in fresh.items():
                if id_ in rows:
                    self._take(id_, rows[id_], label)
                else:
                    self._correct(id_, label)
        return reply

    def _keep_chosen(self, given: Labels, reply: Reply) -> tuple[list[str], list[int]]:
        """Labels of rows that were picked for what they are go to the log alone, since counting the errors would make
        any model look worse. Gives back those of rows that a random sample has labelled before: these it corrects."""
        fresh: dict[str, int] = {}
        counted: list[str] = []
        for id_, label in zip(given.ids, given.labels, strict=True):
            known = fresh.get(id_, self._chosen_labels.get(id_))
            if id_ in self._known_labels:
                counted.append(id_)
            elif known == label:
                reply.note(id_, "repeated")
            elif known is None and self.served_rows.find(id_) is None:
                reply.note(id_, "unknown")
            else:
                reply.note(id_, "accepted" if known is None else "changed")
                fresh[id_] = label
        if self._output is not None and fresh:
            self._output.labels(list(fresh), list(fresh.values()), chosen=True)
        self._chosen_labels.update(fresh)
        said = dict(zip(given.ids, given.labels, strict=True))
        return counted, [said[id_] for id_ in counted]

    def _take(self, id_: str, log_p: NDArray[np.float32], label: int) -> None:
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

    def _verdict(self) -> Verdict:
        return served_verdict(self.window.labelled_rows(), self.alarms.states())

    def _correct(self, id_: str, label: int) -> None:
        row = self.served_rows.find(id_) if self.window.holds(id_) else None
        if row is not None and row.log_p is not None:
            self.window.labelled(id_, self._labelled(row.log_p, label))

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

    def knew(self, record: dict[str, Any]) -> None:
        """Labels of an earlier log, so that none counts twice."""
        chosen = record["record"] == CHOSEN
        with self._lock:
            for id_, label in zip(record["ids"], record["labels"], strict=True):
                if not chosen:
                    self._known_labels.update({id_: label})
                    self._chosen_labels.discard(id_)
                elif id_ not in self._known_labels:
                    self._chosen_labels.update({id_: label})

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
                Tally(self.rows, self.labels, len(self._chosen_labels), self.not_finite, self.lost),
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
