"""The alarms of one served file, as its server raises them and as a reader of its feedback log raises them again.

What they are set to goes into the log (`Watch`), so that both say the same at the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.monitoring.baseline import Baseline, KnownRows
from calibrant.calibration.monitoring.calibration_alarm import CalibrationAlarm, CalibrationSettings
from calibrant.calibration.monitoring.drift_alarm import DriftAlarm, DriftSettings
from calibrant.calibration.monitoring.feature_alarm import FeatureAlarm, FeatureWatch
from calibrant.calibration.softmax import LEAST_LOG_P, log_softmax

Array = NDArray[np.float64]
CONFIDENCE_BINS = 20
WINDOW = 2000  # rows, labelled or not, that rolling figures are about


def served_log_p(logits: NDArray[np.floating[Any]]) -> Array:
    """(N, C) log probabilities of logits as a file returned them."""
    return np.maximum(log_softmax(logits), LEAST_LOG_P)


@dataclass(frozen=True)
class AlarmState:
    """`needs`: rows before it can say anything. `raised_at`: the row at which it went on; it fires again as long as the
    evidence comes, the last time at `fired_at`."""

    on: bool
    rows: int
    fired_at: int | None
    log_evidence: float | None
    log_threshold: float
    needs: int
    raised_at: int | None = None

    @classmethod
    def of(cls, alarm: CalibrationAlarm | DriftAlarm | FeatureAlarm) -> AlarmState:
        evidence = alarm.log_evidence
        return cls(
            alarm.on,
            alarm.rows,
            alarm.fired_at,
            evidence if math.isfinite(evidence) else None,
            alarm.log_threshold,
            alarm.needs,
            alarm.raised_at,
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "on": self.on, "rows": self.rows, "raised_at": self.raised_at, "fired_at": self.fired_at,
            "log_evidence": self.log_evidence, "log_threshold": self.log_threshold,
        }  # fmt: skip


@dataclass(frozen=True)
class Watch:
    """How a served file is watched, from when on; the defaults are those of a server that says nothing."""

    since: float = -math.inf  # seconds since 1970
    calibration: CalibrationSettings = field(default_factory=CalibrationSettings)
    drift: DriftSettings = field(default_factory=DriftSettings)
    baseline: Baseline | None = None
    beginning: KnownRows | None = None  # of a baseline that is learned
    window: int = WINDOW
    features: FeatureWatch | None = None  # where they are watched too

    @classmethod
    def given(
        cls,
        since: float,
        calibration: CalibrationSettings,
        drift: DriftSettings,
        rows: KnownRows | None,
        window: int,
        features: FeatureWatch | None = None,
    ) -> Watch:
        """`rows`: labelled ones that count as normal. Enough of them are a baseline; of fewer the error would add up to
        false alarms, so they are only the first rows of one that is learned."""
        if rows is None:
            return cls(since, calibration, drift, window=window, features=features)
        if len(rows) < calibration.fewest_rows(rows.log_p.shape[1]):
            return cls(since, calibration, drift, None, rows.thinned(), window, features)
        return cls(since, calibration, drift, Baseline.fit([rows]), None, window, features)

    def to_dict(self) -> dict[str, Any]:
        return {
            "since": self.since, "calibration": asdict(self.calibration), "drift": asdict(self.drift),
            "baseline": None if self.baseline is None else self.baseline.to_dict(),
            "beginning": None if self.beginning is None else self.beginning.to_dict(), "window": self.window,
            "features": None if self.features is None else self.features.to_dict(),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> Watch:
        """None: of a log that does not say."""
        if values is None:
            return cls()
        baseline, beginning, features = values["baseline"], values["beginning"], values.get("features")
        return cls(
            float(values["since"]),
            _settings(CalibrationSettings, values["calibration"]),
            _settings(DriftSettings, values["drift"]),
            None if baseline is None else Baseline.from_dict(baseline),
            None if beginning is None else KnownRows.from_dict(beginning),
            int(values["window"]),
            None if features is None else FeatureWatch.from_dict(features),
        )


_S = TypeVar("_S", CalibrationSettings, DriftSettings)


def _settings(kind: type[_S], values: Mapping[str, Any]) -> _S:
    """Lists as tuples; what a later version may have added is left out."""
    known: dict[str, Any] = {f.name: values[f.name] for f in fields(kind) if f.name in values}
    known = {name: tuple(v) if isinstance(v, list) else v for name, v in known.items()}
    return kind(**known)


class Alarms:
    """Of the confidences against the labels, and of drift of the confidences, of the predicted classes and, where they
    are watched, of the features."""

    def __init__(self, classes: int, watch: Watch) -> None:
        self.calibration = CalibrationAlarm(watch.calibration, watch.baseline, watch.beginning)
        self.confidence = DriftAlarm(CONFIDENCE_BINS, watch.drift)
        self.prior = DriftAlarm(classes, watch.drift)
        self.features = None if watch.features is None else FeatureAlarm(watch.features, watch.drift)

    def answered(self, log_p: Array) -> tuple[bool, bool]:
        """Takes (N, C) of `served_log_p` in order of time; whether confidences and predicted classes raised an alarm
        that was not on."""
        confidence, was = np.exp(log_p.max(axis=1)), (self.confidence.on, self.prior.on)
        bins = np.clip((confidence * CONFIDENCE_BINS).astype(int), 0, CONFIDENCE_BINS - 1)
        fired = self.confidence.add(bins), self.prior.add(log_p.argmax(axis=1))
        return fired[0] and not was[0], fired[1] and not was[1]

    def featured(self, scores: NDArray[np.float32]) -> bool:
        """Takes (N, K + 1) of `feature_scores` in order of time; whether that raised an alarm that was not on."""
        if self.features is None:
            return False
        was = self.features.on
        return self.features.add(scores) and not was

    def labelled(self, log_p: NDArray[np.floating[Any]], labels: NDArray[np.int64]) -> bool:
        """Takes rows in the order in which their labels came; whether that raised an alarm that was not on."""
        was = self.calibration.on
        # Rows wait for their labels in float32: whoever reads them again must not know more.
        return self.calibration.add(log_p.astype(np.float32).astype(np.float64), labels) and not was

    def states(self) -> dict[str, AlarmState]:
        states = {
            "calibration": AlarmState.of(self.calibration),
            "confidence": AlarmState.of(self.confidence),
            "prior": AlarmState.of(self.prior),
        }
        return states if self.features is None else {**states, "features": AlarmState.of(self.features)}
