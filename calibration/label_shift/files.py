"""`estimate:SERVED`, where a target prior is asked for: the prior of the rows in a predictions file, labels or not."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from calibrant.artifacts.feedback_logits import refuse_cut
from calibrant.artifacts.predictions import PredictionsFile
from calibrant.calibration.label_shift.estimate import PriorEstimate, estimate_prior
from calibrant.errors import DataError

log = logging.getLogger(__name__)

PREFIX = "estimate:"


def resolved(target_prior: str | None, labelled: Path) -> str | None:
    """`estimate:SERVED` as the shares that it stands for, with what was found in the log; anything else as it is."""
    served = served_file(target_prior)
    if served is None:
        return target_prior
    found = estimate_of_file(served, labelled)
    for sentence in found.sentences(PredictionsFile.open(labelled).source.class_names):
        log.warning("%s: %s", served.name, sentence)
    return json.dumps(found.target.tolist())


def served_file(target_prior: str | None) -> Path | None:
    """The file of `estimate:FILE`; None where a prior is written as one."""
    if target_prior is None or not target_prior.startswith(PREFIX):
        return None
    return Path(target_prior.removeprefix(PREFIX))


def estimate_of_file(served: Path, labelled: Path) -> PriorEstimate:
    """The prior of the rows of `served`, as the same model's predictions with labels, `labelled`, let it be read."""
    first, second = PredictionsFile.open(labelled), PredictionsFile.open(served)
    if second.source.class_names != first.source.class_names:
        raise DataError(f"has other classes than {labelled.name}", where=served, fix="predict both with one model")
    for file in (first, second):
        refuse_cut(file.source.model, file.path, "an estimate of class shares")
    known = first.read().labelled()
    if len(known) == 0:
        raise DataError("no row has a label, so nothing can be estimated from it", where=labelled)
    try:
        return estimate_prior(known.logits, known.labels, second.read().logits)
    except DataError as error:
        raise DataError(error.what, where=served, fix=error.fix) from None
