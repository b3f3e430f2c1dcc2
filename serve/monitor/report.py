"""The body of GET /v2/models/M/monitor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts import feedback
from calibrant.artifacts.feedback_logits import CUT, refuse_cut
from calibrant.calibration.monitoring.alarms import AlarmState
from calibrant.calibration.verdict.served import served_verdict
from calibrant.errors import DataError
from calibrant.serve.monitor.window import Window

if TYPE_CHECKING:
    from calibrant.calibration.monitoring.served_prior import ServedPrior


@dataclass(frozen=True)
class Tally:
    rows: int
    labels: int
    chosen_labels: int  # of rows that are no random sample: kept, not counted
    not_finite: int  # rows whose answer was no distribution
    log_rows_lost: int


def report(
    model: feedback.Model,
    counts: Tally,
    window: Window,
    alarms: Mapping[str, AlarmState],
    *,
    baseline_rows: int,
    nominal_coverage: float | None,
    logits_kept: int | None = None,
    features: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """`baseline_rows`: labelled rows that the calibration alarm compares with, 0 while it has yet to learn what is
    normal; `nominal_coverage`: of the prediction sets that are watched; `logits_kept`: of a row, if not all;
    `features`: what is watched of them, if it was asked for."""
    told = {kind: state.to_dict() for kind, state in alarms.items()}
    told["calibration"]["baseline_rows"] = baseline_rows
    body: dict[str, Any] = {
        "model": model.name, "version": model.version, "sha256": model.sha256,
        "rows": counts.rows, "labels": counts.labels, "chosen_labels": counts.chosen_labels, "window": window.size,
        "not_finite": counts.not_finite, "log_rows_lost": counts.log_rows_lost, "alarms": told,
    }  # fmt: skip
    if logits_kept is not None:  # so that the NLL is near where a label is not among them
        body["logits_kept"] = logits_kept
    if features is not None:
        body["features"] = features
    confidence = window.confidence()
    if len(confidence):
        body["expected_accuracy"] = {
            **window.expected(confidence).to_dict(), "rows": len(confidence), "held_out_gap": window.held_out_gap,
            "assumes": "that the confidences are still calibrated; under a shift it is too high",
        }  # fmt: skip
        body["predicted_prior"] = dict(zip(model.classes, window.prior().round(6).tolist(), strict=True))
    body["verdict"] = served_verdict(window.labelled_rows(), alarms).to_dict()
    found = window.rolling()
    if found is not None:
        # On the rows that have labels, what would have been said without them, and how wrong it was.
        promised = window.expected(np.array([row.confidence for row in window.labelled_rows()]))
        body["labelled"] = {
            **found.to_dict(),
            "expected_accuracy": promised.to_dict(),
            "expected_accuracy_error": promised.value - found.accuracy.value,
        }
        if nominal_coverage is not None:
            body["labelled"]["nominal_coverage"] = nominal_coverage
    return body


def class_shares(
    follower: ServedPrior, rows: NDArray[np.float32], classes: Sequence[str], *, cut: int | None = None
) -> dict[str, Any]:
    """`shares` by class where they can be told, and `said` in words in any case. `cut`: logits kept of a row."""
    try:
        refuse_cut({CUT: cut}, None, "an estimate of class shares")
        found = follower.estimate(rows)
    except DataError as error:
        return {"rows": len(rows), "shares": None, "said": [str(error)]}
    shares = {
        name: {"value": float(found.prior[k]), "low": float(found.low[k]), "high": float(found.high[k])}
        for k, name in enumerate(classes)
    }
    return {
        "rows": found.rows, "labelled_rows": found.labelled_rows, "shifted": found.shifted,
        "consistent": found.consistent, "p_value": found.p_value, "shares": shares, "said": found.sentences(classes),
    }  # fmt: skip


def summary(body: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a report by which versions are compared."""
    labelled = body.get("labelled") or {}
    return {
        "rows": body["rows"], "labels": body["labels"], "expected_accuracy": body.get("expected_accuracy"),
        **{key: labelled.get(key) for key in ("accuracy", "ece", "nll", "coverage")},
        "alarm": body["alarms"]["calibration"]["on"], "verdict": body["verdict"]["level"],
    }  # fmt: skip
