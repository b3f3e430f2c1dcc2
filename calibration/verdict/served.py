"""The verdict on a served model: of the labelled rows of a window, and of the alarms. Needs no scipy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from calibrant.calibration.monitoring.alarms import AlarmState
from calibrant.calibration.monitoring.rolling import ECE_BINS, LabelledRow, rolling_ece
from calibrant.calibration.statistics.bins import equal_width
from calibrant.calibration.verdict.causes.confidence import excess_cause, few_rows_cause
from calibrant.calibration.verdict.causes.excess import Excess
from calibrant.calibration.verdict.labels_needed import Claims
from calibrant.calibration.verdict.level import capped, level_of
from calibrant.calibration.verdict.policy import MARGIN
from calibrant.calibration.verdict.remedies.more_labels import labels_remedy
from calibrant.calibration.verdict.sentence import sentence
from calibrant.calibration.verdict.verdict import Cause, Remedy, Verdict

_CHANGED: Mapping[str, str] = {
    "prior": "The mix of predicted classes has changed since the first rows",
    "confidence": "The confidences have changed since the first rows: other pictures come in",
    "features": "The features are not those of the rows that count as normal: other pictures come in",
}
_ANEW = Remedy(
    "recalibrate",
    None,
    "Try a new calibrator on the labelled answers: calibrant evaluate, given the feedback log, says what would help; "
    "the dashboard's Production page writes it into a new file.",
)


def served_verdict(rows: Sequence[LabelledRow], alarms: Mapping[str, AlarmState], *, margin: float = MARGIN) -> Verdict:
    """`rows`: those of the window that have labels. An alarm that is on leaves it at best usable with care."""
    changed = [
        Cause("prior-shift", f"{words} (alarm at row {at:,}).", {"alarm_at": at})
        for kind, words in _CHANGED.items()
        if kind in alarms and alarms[kind].on
        for at in (alarms[kind].raised_at,)
    ]
    if len(rows) < 2:
        few = Cause("too-few-rows", "No labels, no verdict: send the true classes of answers.", {"rows": len(rows)})
        said = f"Cannot be told: {len(rows)} of the last answers {'has' if len(rows) == 1 else 'have'} a label."
        return Verdict("unknown", said, (few, *changed))
    confidence = np.array([row.confidence for row in rows])
    correct = np.array([row.correct for row in rows], bool)
    ece, excess = rolling_ece(confidence, correct.astype(np.float64)), Excess.of_rows(confidence, correct)
    level = level_of(ece, margin)
    mismatch = "calibration" in alarms and alarms["calibration"].on
    if changed or mismatch:
        level = capped(level)
    general = excess_cause(excess) if level != "trusted" else None
    causes = [cause for cause in (general,) if cause is not None]
    if mismatch and not causes:
        side = "over-confident" if excess.gap > 0 else "under-confident"
        at = alarms["calibration"].raised_at
        causes = [
            Cause(
                "over-confident" if side == "over-confident" else "under-confident",
                f"The labels have stopped to agree with the confidences (alarm at label {at:,}).",
                {"alarm_at": at, "gap": excess.gap, "chance": excess.chance, "p": excess.p},
            )
        ]
    causes += changed
    remedies = []
    few_rows = few_rows_cause(level, ece, len(rows))
    if few_rows is not None and (level == "unknown" or not causes):
        causes = [few_rows, *causes]
        claims = Claims.of_bins(equal_width(confidence, correct, ECE_BINS))
        remedies.append(labels_remedy(claims, len(rows), len(rows), margin=margin))
    if level in ("not-trusted", "care") and causes and few_rows not in causes:
        remedies.append(_ANEW)
    return Verdict(level, sentence(level, ece, causes, len(rows)), tuple(causes), tuple(remedies))
