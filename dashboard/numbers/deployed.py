"""A deployed file on the held-out predictions of the run that it came from: what it would have answered.

The file's own formula (see calibrant.calibration.formula) is applied to the kept logits; no picture is decoded.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.predictions import PredictionsFile
from calibrant.calibration.formula import Formula
from calibrant.dashboard.folder.artifacts import FolderIndex, Model, PredictionsRef, Run
from calibrant.dashboard.folder.contents import card_of
from calibrant.dashboard.folder.files import Stamp
from calibrant.errors import DataError

MOST_ROWS = 200_000


def confidence(card: ModelCard, logits: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.asarray(Formula.of_card(card).probabilities(logits).max(axis=1))


@lru_cache(8)
def reference_confidence(files: tuple[Stamp, ...], model: Stamp) -> NDArray[np.float64]:
    """Confidences with which the deployed file would answer the rows of a predictions file, the first of them."""
    file = PredictionsFile.open(files[0].path if len(files) == 1 else files[0].path.parent)
    found, rows = [np.zeros(0)], 0
    for batch in file.batches():
        if rows < MOST_ROWS and len(batch):
            found.append(confidence(card_of(model), batch.logits))
            rows += len(batch)
    return np.concatenate(found)


def rows_of(folder_index: FolderIndex, owner: Run | Model) -> tuple[Run, tuple[PredictionsRef, ...]]:
    """The run whose predictions judge it, and these predictions."""
    if isinstance(owner, Run):
        return owner, owner.predictions
    found = held_out(folder_index, owner)
    if found is None:
        raise DataError("no predictions of its weights are here", where=owner.name)
    run, best = found
    same = best.source.model.get("sha256")
    return run, tuple(p for p in run.predictions if p.source.model.get("sha256") == same)


def held_out(folder_index: FolderIndex, model: Model) -> tuple[Run, PredictionsRef] | None:
    """The test (else validation) predictions of the very weights in the file, which it names by hash."""
    weights = model.card.source.get("checkpoint_sha256")
    for run in sorted(folder_index.runs, key=lambda r: model.path.parent not in (r.path, r.path.parent)):
        best = run.best()
        if best is None or not weights or best.source.model.get("sha256") != weights:
            continue
        if best.source.class_names == model.card.classes:
            return run, best
    return None
