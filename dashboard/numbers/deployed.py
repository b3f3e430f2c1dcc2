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
from calibrant.calibration.statistics.accumulate import Accumulator
from calibrant.calibration.statistics.statistics import Statistics
from calibrant.dashboard.folder.artifacts import Model, PredictionsRef, Run, Shelf
from calibrant.dashboard.folder.contents import card_of
from calibrant.dashboard.folder.files import Stamp
from calibrant.dashboard.numbers import measures
from calibrant.dashboard.numbers.measures import Summary
from calibrant.dashboard.numbers.predictions_through import Scored
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


def held_out(shelf: Shelf, model: Model) -> tuple[Run, PredictionsRef] | None:
    """The test (else validation) predictions of the very weights in the file, which it names by hash."""
    weights = model.card.source.get("checkpoint_sha256")
    for run in sorted(shelf.runs, key=lambda r: model.path.parent not in (r.path, r.path.parent)):
        best = run.best()
        if best is None or not weights or best.source.model.get("sha256") != weights:
            continue
        if best.source.class_names == model.card.classes:
            return run, best
    return None


@lru_cache(32)
def statistics(model: Stamp, scored: Scored) -> Statistics:
    """Of the answers that the file would have given, to the first rows where there are very many."""
    card, file = card_of(model), PredictionsFile.open(scored.path.path)
    formula = Formula.of_card(card)
    accumulator = Accumulator(len(card.classes), rows_expected=min(file.rows, MOST_ROWS))
    rows = 0
    for batch in file.batches():
        part = batch.labelled()
        if rows < MOST_ROWS and len(part):
            accumulator.add(formula.logits(part.logits), part.labels)
            rows += len(part)
    if not rows:
        raise DataError("no row has a label", where=scored.path.path.name)
    return accumulator.finish()


@lru_cache(256)
def summary(model: Stamp, scored: Scored) -> Summary:
    """Accuracy as deployed; NLL and ECE of the network alone, then as deployed."""
    return measures.summary_of(measures.statistics(scored), statistics(model, scored))
