"""The last rows of a served model, and the last of them that have labels."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard
from calibrant.calibration.monitoring.baseline import KnownRows
from calibrant.calibration.monitoring.expected_accuracy import ExpectedAccuracy, expected_accuracy, held_out_gap
from calibrant.calibration.monitoring.rolling import LabelledRow, Rolling, rolling

if TYPE_CHECKING:
    from calibrant.calibration.monitoring.served_prior import ServedPrior

Array = NDArray[np.float64]


class Window:
    def __init__(self, size: int, classes: int, card: ModelCard, known: KnownRows | None = None) -> None:
        self.size = size
        self.served_prior: ServedPrior | None = None
        if known is not None:
            from calibrant.calibration.monitoring.served_prior import ServedPrior  # 1 MB that most servers do without

            self.served_prior = ServedPrior(known, size)
        self._confidence: deque[float] = deque(maxlen=size)
        self._prior = np.zeros(classes)
        self._labelled: dict[str, LabelledRow] = {}
        self.held_out_gap, self._gap_variance = held_out_gap(card)

    def answered(self, log_p: Array) -> None:
        if self.served_prior is not None:
            self.served_prior.answered(log_p)
        p = np.exp(log_p)
        self._confidence.extend(p.max(axis=1).tolist())
        # Forgets at the pace of the window.
        self._prior += p.sum(axis=0)
        if (total := self._prior.sum()) > self.size:
            self._prior *= self.size / total

    def labelled(self, id_: str, row: LabelledRow) -> None:
        self._labelled[id_] = row
        if len(self._labelled) > self.size:
            self._labelled.pop(next(iter(self._labelled)))

    def holds(self, id_: str) -> bool:
        """Whether the row's label is among the last ones."""
        return id_ in self._labelled

    def labelled_rows(self) -> list[LabelledRow]:
        return list(self._labelled.values())

    def rolling(self) -> Rolling | None:
        return rolling(self.labelled_rows())

    def confidence(self) -> Array:
        return np.array(self._confidence)

    def prior(self) -> Array:
        """Share of each class among the predictions."""
        shares: Array = self._prior / self._prior.sum()
        return shares

    def expected(self, confidence: Array) -> ExpectedAccuracy:
        return expected_accuracy(confidence, gap=self.held_out_gap, gap_variance=self._gap_variance)
