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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts import feedback
from calibrant.artifacts.model_card import ModelCard
from calibrant.calibration.monitoring.watch import (
    Baseline,
    CalibrationAlarm,
    DriftAlarm,
    Rolling,
    expected_accuracy,
    held_out_gap,
    rolling,
)
from calibrant.serve.engine import prediction_sets
from calibrant.serve.engine.deployed_formula import DeployedFormula
from calibrant.serve.monitor.labels import Reply
from calibrant.serve.monitor.log_index import Index, line_at
from calibrant.serve.protocol.errors import NotReady

log = logging.getLogger(__name__)

CONFIDENCE_BINS = 20
RECENT_BYTES = 16 << 20  # of rows kept for labels that come soon; older ones are looked up in the log
MOST_PENDING = 200_000  # requests that wait for the thread
LEAST_LOG_P = -100.0  # what a class that the model rules out counts as, so that sums stay finite


@dataclass(frozen=True)
class MonitorConfig:
    window: int = 2000  # rows, labelled or not, that the rolling figures are about
    alpha: float = 0.001
    horizon: int = 5000
    sample: float = 1.0  # share of the requests that is logged and watched
    segment_bytes: int = 64 << 20
    keep_bytes: int | None = 10 << 30
    keep_days: float | None = None


_Handed = tuple[str, float, NDArray[np.float32], float | None]  # id, time, logits, seconds


@dataclass
class _Row:
    """A served row that may still get its label; without figures if another file of the model served it."""

    log_p: NDArray[np.float32] | None


class Monitor:
    """One per model file. `record` from the event loop; `label`, `report` from any thread."""

    def __init__(
        self,
        model: feedback.Model,
        card: ModelCard,
        config: MonitorConfig,
        writer: feedback.FeedbackWriter | None,
        *,
        alarm: Callable[[str], None] | None = None,
        counts: bool = True,
        baseline: Baseline | None = None,
    ) -> None:
        """`counts=False`: only writes the log, for another process to watch. `baseline`: of the calibration alarm;
        without one it learns its own from the first labels."""
        self.model, self.card, self.config, self.writer, self.counts = model, card, config, writer, counts
        self._say = alarm or (lambda text: log.warning("%s", text))
        self._pending: deque[_Handed] = deque()
        self._lock = threading.RLock()
        self._recent: dict[str, _Row] = {}
        self._confidence: deque[float] = deque(maxlen=config.window)
        self._prior = np.zeros(len(model.classes))
        self._labelled: deque[tuple[float, float, float, float]] = deque(maxlen=config.window)
        self.index = Index()
        self._restored = threading.Event()
        self._restored.set()
        self._known_labels: dict[str, int] = {}
        self._most_recent = max(100, min(20_000, RECENT_BYTES // (4 * len(model.classes))))
        self.rows = self.labels = 0
        self.not_finite = 0  # rows whose answer was no distribution
        self.lost = self._failing = 0  # rows that the log could not take: in all, and since it last could
        classes = len(model.classes)
        self.calibration = CalibrationAlarm(config.alpha, config.horizon, baseline=baseline)
        self.confidence_drift = DriftAlarm(CONFIDENCE_BINS, alpha=config.alpha)
        self.prior_drift = DriftAlarm(classes, alpha=config.alpha)
        self._quantile = _some_quantile(card)
        self._redo = DeployedFormula.of(card)
        self._gap, self._gap_variance = held_out_gap(card)

    # ---- from the event loop

    def record(self, id_: str, logits: NDArray[np.float32], seconds: float | None = None) -> None:
        """logits (rows, C) as the file returned them; copied, because they may be a part of a whole batch. `seconds`:
        how long the request waited and ran."""
        if len(self._pending) >= MOST_PENDING:  # the disk hangs
            self.lost += len(logits)
            return
        self._pending.append((id_, time.time(), np.array(logits, np.float32), seconds))

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
            ids = [name for id_, _, block, _ in taken for name in row_ids(id_, len(block))]
            times = [round(at, 3) for _, at, block, _ in taken for _ in range(len(block))]
            took = [None if s is None else round(1e3 * s, 3) for *_, block, s in taken for _ in range(len(block))]
            if self.writer is not None:
                self._write(self.writer, ids, times, logits, took)
            if self.counts:
                self._count(ids, _log_softmax(logits))

    def _write(
        self,
        writer: feedback.FeedbackWriter,
        ids: list[str],
        times: list[float],
        logits: NDArray[np.float32],
        took: list[float | None],
    ) -> None:
        """A disk that is full costs the log its rows, which are watched all the same; said once, and once when over."""
        try:
            path, offset = writer.predictions(self.model, ids, times, logits, latency_ms=took)
        except OSError as error:
            if not self._failing:
                log.error("the feedback log cannot be written (%s): answers are watched but not kept", _why(error))
            self._failing += len(ids)
            self.lost += len(ids)
            return
        if self._failing:
            log.error("the feedback log is written again; %d rows are not in it", self._failing)
            self._failing = 0
        if self.counts:
            self.index.add(path, offset, ids)

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

    def take_in(self, path: Path, offset: int, ids: list[str], logits: NDArray[np.float32]) -> None:
        """Rows that another process predicted and wrote to this place of the log."""
        with self._lock:
            self.index.add(path, offset, ids)
            self._count(ids, _log_softmax(logits))

    def _count(self, ids: list[str], log_p: NDArray[np.float64]) -> None:
        p = np.exp(log_p)
        confidence, predicted = p.max(axis=1), p.argmax(axis=1)
        self.rows += len(ids)
        self._confidence.extend(confidence.tolist())
        # Forgets at the pace of the window.
        self._prior += p.sum(axis=0)
        if (total := self._prior.sum()) > self.config.window:
            self._prior *= self.config.window / total
        for id_, row in zip(ids, log_p.astype(np.float32), strict=True):
            if id_ not in self._recent:
                self._recent[id_] = _Row(row)
        while len(self._recent) > self._most_recent:
            self._recent.pop(next(iter(self._recent)))
        bins = np.clip((confidence * CONFIDENCE_BINS).astype(int), 0, CONFIDENCE_BINS - 1)
        known = self.confidence_drift.on, self.prior_drift.on  # said already
        if self.confidence_drift.add(bins) and not known[0]:
            self._say(f"{self._name}: the confidences have drifted from those of the first rows (row {self.rows})")
        if self.prior_drift.add(predicted) and not known[1]:
            self._say(f"{self._name}: the mix of predicted classes has drifted (row {self.rows})")

    # ---- labels

    def label(self, ids: Sequence[str], labels: Sequence[int]) -> Reply:
        """Takes true labels; the same again changes nothing, another one replaces the first."""
        reply = Reply()
        self._restored.wait(60)
        self.flush()
        fresh: dict[str, int] = {}
        rows: list[tuple[NDArray[np.float32], int]] = []
        with self._lock:
            for id_, label in zip(ids, labels, strict=True):
                known = fresh.get(id_, self._known_labels.get(id_))
                row = self._row(id_) if known is None else None
                if known == label:
                    reply.note(id_, "repeated")
                elif known is None and row is None:
                    reply.note(id_, "unknown")
                else:
                    reply.note(id_, "accepted" if known is None else "changed")
                    if row is not None and row.log_p is not None:
                        rows.append((row.log_p, label))
                    fresh[id_] = label
            # First the log: what it cannot keep must not count, or the caller's second try would be a repetition.
            if self.writer is not None and fresh:
                try:
                    self.writer.labels(self.model.name, list(fresh), list(fresh.values()))
                except OSError as error:
                    raise NotReady(f"the feedback log cannot be written ({_why(error)}), so no label was taken; "
                                       "send them again later", retry_after=30) from None  # fmt: skip
            self._known_labels.update(fresh)
            for log_p, label in rows:
                self._take(log_p, label)
        return reply

    def _row(self, id_: str) -> _Row | None:
        recent = self._recent.get(id_)
        if recent is not None:
            return recent
        at = self.index.find(id_)
        if at is None:
            return None
        record = line_at(*at)
        if record is None or id_ not in record["ids"]:
            return None
        if record["sha256"] != self.model.sha256:
            return _Row(None)
        logits = feedback.decode_logits(record, len(self.model.classes))[record["ids"].index(id_)]
        return _Row(_log_softmax(logits[None])[0].astype(np.float32))

    def _take(self, served: NDArray[np.float32], label: int) -> None:
        log_p = served.astype(np.float64)
        confidence = float(np.exp(log_p.max()))
        covered = math.nan
        if self._quantile is not None:
            outputs = {"logits": log_p[None]}
            sets = prediction_sets.prediction_sets(
                self.card, self._redo.conformal_probabilities(outputs), self._quantile
            )
            covered = float(sets[0, label])
        self._labelled.append((confidence, float(log_p.argmax() == label), float(-log_p[label]), covered))
        self.labels += 1
        known = self.calibration.on
        if self.calibration.add(log_p[None], np.array([label])) and not known:
            self._say(
                f"{self._name}: the confidences no longer match the labels (alarm after {self.labels} labels); "
                "look at the report and recalibrate"
            )

    def restore_later(self, folder: Path) -> None:
        """In a thread of its own: a large log must not hold up the start. Labels wait until it is done."""
        self._restored.clear()

        def work() -> None:
            try:
                self.restore(folder)
            except Exception:
                log.exception("%s: the earlier log cannot be read; labels for its predictions will be unknown", folder)
            finally:
                self._restored.set()

        threading.Thread(target=work, name="restore", daemon=True).start()

    def restore(self, folder: Path) -> None:
        """Reads an earlier log of this model, so that its predictions can get labels and no label counts twice.

        Labels of what an older file of the same name served go to the log, not into this file's figures.
        """
        files = {self.model.sha256}
        for path in feedback.segments(folder):
            if self.writer is not None and path == self.writer.path:
                continue
            for offset, record in feedback.records(path):
                if record["record"] == "model" and record["model"] == self.model.name:
                    files.add(record["sha256"])
                elif record["record"] == "predictions" and record["sha256"] in files:
                    with self._lock:
                        self.index.add(path, offset, record["ids"])
                elif record["record"] == "labels" and record["model"] == self.model.name:
                    with self._lock:
                        self._known_labels.update(zip(record["ids"], record["labels"], strict=True))

    # ---- what it found

    @property
    def _name(self) -> str:
        return f"{self.model.name} version {self.model.version}"

    def rolling(self) -> Rolling | None:
        with self._lock:
            rows = np.array(self._labelled, np.float64).reshape(-1, 4)
        if len(rows) < 2:
            return None
        covered = None if np.isnan(rows[:, 3]).any() else rows[:, 3]
        return rolling(rows[:, 0], rows[:, 1], rows[:, 2], covered)

    def report(self) -> dict[str, Any]:
        """GET /v2/models/M/monitor."""
        self.flush()
        with self._lock:
            confidence = np.array(self._confidence)
            prior = self._prior.copy()
        body: dict[str, Any] = {
            "model": self.model.name, "version": self.model.version, "sha256": self.model.sha256,
            "rows": self.rows, "labels": self.labels, "window": self.config.window,
            "not_finite": self.not_finite, "log_rows_lost": self.lost,
            "alarms": {
                "calibration": {**self._alarm(self.calibration), "baseline_rows": self._baseline_rows},
                "confidence": self._alarm(self.confidence_drift), "prior": self._alarm(self.prior_drift),
            },
        }  # fmt: skip
        if len(confidence):
            expected = expected_accuracy(confidence, gap=self._gap, gap_variance=self._gap_variance)
            body["expected_accuracy"] = {
                **expected.to_dict(), "rows": len(confidence), "held_out_gap": self._gap,
                "assumes": "that the confidences are still calibrated; under a shift it is too high",
            }  # fmt: skip
            body["predicted_prior"] = dict(
                zip(self.model.classes, (prior / prior.sum()).round(6).tolist(), strict=True)
            )
        found = self.rolling()
        if found is not None:
            body["labelled"] = found.to_dict()
            with self._lock:
                own = np.array([row[0] for row in self._labelled])
            # On the rows that have labels, what would have been said without them, and how wrong it was.
            promised = expected_accuracy(own, gap=self._gap, gap_variance=self._gap_variance)
            body["labelled"]["expected_accuracy"] = promised.to_dict()
            body["labelled"]["expected_accuracy_error"] = promised.value - found.accuracy.value
            if self._quantile is not None:
                body["labelled"]["nominal_coverage"] = self._quantile
        return body

    def summary(self) -> dict[str, Any]:
        """The figures by which versions are compared."""
        body = self.report()
        labelled = body.get("labelled") or {}
        return {
            "rows": self.rows, "labels": self.labels, "expected_accuracy": body.get("expected_accuracy"),
            **{key: labelled.get(key) for key in ("accuracy", "ece", "nll", "coverage")},
            "alarm": self.calibration.on,
        }  # fmt: skip

    @property
    def _baseline_rows(self) -> int:
        """How many labelled rows the calibration alarm compares with; 0 while it has yet to learn what is normal."""
        return 0 if self.calibration.baseline is None else self.calibration.baseline.rows

    @staticmethod
    def _alarm(alarm: CalibrationAlarm | DriftAlarm) -> dict[str, Any]:
        evidence = alarm.log_evidence
        return {
            "on": alarm.on, "rows": alarm.rows, "fired_at": alarm.fired_at,
            "log_evidence": evidence if math.isfinite(evidence) else None, "log_threshold": alarm.log_threshold,
        }  # fmt: skip


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def row_ids(id_: str, rows: int) -> list[str]:
    """The request id for one row; with the number of the row behind it where there are more."""
    return [id_] if rows == 1 else [f"{id_}/{n}" for n in range(rows)]


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    z = logits.astype(np.float64)
    z -= z.max(axis=1, keepdims=True)
    result: NDArray[np.float64] = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return np.maximum(result, LEAST_LOG_P)


def _some_quantile(card: ModelCard) -> float | None:
    """The coverage to watch: 0.9 where the file has it, else the highest."""
    known = prediction_sets.coverages(prediction_sets.blocks(card))
    return 0.9 if 0.9 in known else (known[-1] if known else None)
