"""How large prediction sets are, and how often they hold the truth: a file's own sets, or some fitted for a look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.conformal.holding import set_blocks
from calibrant.calibration.conformal.sets import ConformalSet, fit_conformal
from calibrant.calibration.intervals.means import share_interval
from calibrant.calibration.intervals.measured import Measured
from calibrant.dashboard.folder.artifacts import CalibratorRef, Model
from calibrant.dashboard.folder.contents import opened
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.errors import DataError

MOST_NUMBERS = 4_000_000  # probabilities that are looked at
LEVELS = (0.8, 0.9, 0.95)  # where nothing was fitted


@dataclass(frozen=True)
class SetSizes:
    """`count[k]`: rows whose set has k classes. `fitted_rows`: by which sets were fitted for this look, else None."""

    coverage: float
    count: NDArray[np.int64]
    covered: Measured
    fitted_rows: int | None

    @property
    def mean(self) -> float:
        return float(np.arange(len(self.count)) @ self.count / self.count.sum())


def kept(scored: Scored) -> Mapping[str, Any]:
    """Sets that lie in the file or the calibrator, by alpha."""
    if isinstance(scored.through, Model):
        return set_blocks(scored.through.card)
    return (scored.through.calibrator.conformal or {}) if isinstance(scored.through, CalibratorRef) else {}


def levels(scored: Scored) -> tuple[float, ...]:
    return tuple(sorted(round(1 - float(alpha), 10) for alpha in kept(scored))) or LEVELS


@lru_cache(16)
def set_sizes(scored: Scored, coverage: float) -> SetSizes:
    probs, labels = _first(scored)
    block = next((b for alpha, b in kept(scored).items() if abs(1 - float(alpha) - coverage) < 1e-9), None)
    fitted = None
    if block is not None:
        found = ConformalSet.from_dict({"alpha": 1 - coverage, "rows": 0, **block})
    else:
        order = np.random.default_rng(0).permutation(len(labels))
        half = np.sort(order[: len(labels) // 2])
        judged = np.sort(order[len(labels) // 2 :])
        if len(half) < 10:
            raise DataError("too few labelled rows for prediction sets", where=scored.path.name)
        found, fitted = fit_conformal(probs[half], labels[half], alpha=1 - coverage), len(half)
        probs, labels = probs[judged], labels[judged]
    inside = found.members(probs)
    inside[np.arange(len(labels)), probs.argmax(axis=1)] = True  # as the server has them: never without the answer
    hit = float(inside[np.arange(len(labels)), labels].mean())
    sizes = np.bincount(inside.sum(axis=1), minlength=2)
    return SetSizes(coverage, sizes, Measured(hit, *share_interval(hit, len(labels))), fitted)


@lru_cache(2)
def _first(scored: Scored) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Probabilities and labels of the labelled rows, or of the first of very many."""
    file, formula = opened(scored.files), scored.formula()
    most = max(100, MOST_NUMBERS // len(file.source.class_names))
    probs, labels, rows = [], [], 0
    for batch in file.batches(min(most, 16_384), features=formula.reads_features):
        known = np.flatnonzero(batch.labels >= 0)[: most - rows]
        if len(known):
            part = batch.rows(known)
            probs.append(np.asarray(formula.probabilities(part.logits, part.features), np.float64))
            labels.append(part.labels)
            rows += len(known)
        if rows >= most:
            break
    if not rows:
        raise DataError("no row has a label", where=scored.path.path.name)
    return np.concatenate(probs), np.concatenate(labels)
