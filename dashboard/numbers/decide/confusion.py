"""Which class is taken for which: counts by label and answer, and the rows behind each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.dashboard.numbers.rows import rows_of

MOST_CLASSES = 25  # of a matrix that can be read; of more classes those that are confused most


@dataclass(frozen=True)
class Confusion:
    """`counts[i, j]`: rows of class `classes[i]` that were answered as `classes[j]`."""

    classes: tuple[int, ...]
    counts: NDArray[np.int64]
    left_out: int  # confused rows of other classes


@lru_cache(16)
def confusion(scored: Scored, threshold: float = 0.0, *, most: int = MOST_CLASSES) -> Confusion:
    """Of the rows that are answered at the threshold."""
    rows = rows_of(scored)
    taken = rows.confidence >= threshold
    label, predicted = rows.label[taken].astype(np.int64), rows.predicted[taken].astype(np.int64)
    names = len(scored.path.source.class_names)
    wrong = label != predicted
    involved = np.bincount(label[wrong], minlength=names) + np.bincount(predicted[wrong], minlength=names)
    shown = np.arange(names) if names <= most else np.sort(np.argsort(-involved, kind="stable")[:most])
    place = np.full(names, -1)
    place[shown] = np.arange(len(shown))
    inside = (place[label] >= 0) & (place[predicted] >= 0)
    flat = place[label[inside]] * len(shown) + place[predicted[inside]]
    counts = np.bincount(flat, minlength=len(shown) ** 2).reshape(len(shown), len(shown))
    return Confusion(tuple(shown.tolist()), counts, int((wrong & ~inside).sum()))


def rows_behind(scored: Scored, label: int, predicted: int, threshold: float = 0.0) -> NDArray[np.int64]:
    """The surest first."""
    rows = rows_of(scored)
    found = np.flatnonzero((rows.label == label) & (rows.predicted == predicted) & (rows.confidence >= threshold))
    order: NDArray[np.int64] = found[np.argsort(-rows.confidence[found], kind="stable")]
    return order
