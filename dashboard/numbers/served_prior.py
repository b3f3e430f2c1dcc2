"""The class shares of served rows, read off without their labels; the server's monitor makes the same call."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from calibrant.artifacts.feedback_logits import CUT, refuse_cut
from calibrant.artifacts.predictions import PredictionsFile
from calibrant.calibration.formula import Formula
from calibrant.calibration.label_shift import PriorEstimate
from calibrant.calibration.monitoring.alarms import served_log_p
from calibrant.calibration.monitoring.baseline import KnownRows
from calibrant.calibration.monitoring.served_prior import ServedPrior
from calibrant.dashboard.folder.contents import card_of
from calibrant.dashboard.folder.files import Stamp
from calibrant.dashboard.numbers import traffic
from calibrant.dashboard.numbers.deployed import MOST_ROWS


@lru_cache(4)
def served_prior(
    folder: Path, files: tuple[Stamp, ...], sha256: str, reference: tuple[Stamp, ...], model: Stamp
) -> PriorEstimate | None:
    """Of the last rows of one served file; None where the log does not hold it.

    `reference`: labelled predictions of its network. A DataError says why nothing can be told."""
    served = next((s for s in traffic.read(folder, files).served if s.model.sha256 == sha256), None)
    if served is None:
        return None
    refuse_cut({CUT: served.cut}, None, "an estimate of class shares")
    card = card_of(model)
    known = PredictionsFile.open(reference[0].path if len(reference) == 1 else reference[0].path.parent)
    logits, labels, rows = [], [], 0
    for batch in known.batches():
        part = batch.labelled()
        if rows < MOST_ROWS and len(part):
            logits.append(Formula.of_card(card).logits(part.logits))
            labels.append(part.labels)
            rows += len(part)
    classes = len(card.classes)
    found = ServedPrior(
        KnownRows.of(
            served_log_p(np.concatenate([np.zeros((0, classes)), *logits])),
            np.concatenate([np.zeros(0, np.int64), *labels]),
        ),
        traffic.watch_of(served).window,
    )
    found.answered(served_log_p(served.logits[np.argsort(served.times, kind="stable")]))
    return found.estimate(found.rows())
