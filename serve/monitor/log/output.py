"""What a monitor writes to the feedback log, and what happens when the disk is full."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts import feedback
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.serve.protocol.errors import NotReady

log = logging.getLogger(__name__)


class LogOutput:
    """Rows that cannot be written are counted, since their answers are out; labels are refused, to be sent again."""

    def __init__(self, writer: FeedbackWriter, model: feedback.Model) -> None:
        self._writer, self._model = writer, model
        self.lost = self._failing = 0  # rows that the log could not take: in all, and since it last could

    def describe(self) -> None:
        """Says at once how the model is watched; where that fails, its first predictions say it."""
        try:
            self._writer.model(self._model)
        except OSError as error:
            log.error("the feedback log cannot be written (%s)", _why(error))

    def predictions(
        self,
        ids: list[str],
        times: list[float],
        logits: NDArray[np.float32],
        took: list[float | None],
        scores: NDArray[np.float32] | None = None,
    ) -> tuple[Path, int] | None:
        """Where they are now, or None; a failure is said once, and once when over."""
        try:
            place = self._writer.predictions(self._model, ids, times, logits, latency_ms=took, scores=scores)
        except OSError as error:
            if not self._failing:
                log.error("the feedback log cannot be written (%s): answers are watched but not kept", _why(error))
            self._failing += len(ids)
            self.lost += len(ids)
            return None
        if self._failing:
            log.error("the feedback log is written again; %d rows are not in it", self._failing)
            self._failing = 0
        return place

    def labels(self, ids: Sequence[str], labels: Sequence[int], *, chosen: bool) -> None:
        try:
            self._writer.labels(self._model.name, ids, labels, chosen=chosen)
        except OSError as error:
            raise NotReady(
                f"the feedback log cannot be written ({_why(error)}), so no label was taken; send them again later",
                retry_after=30,
            ) from None


def _why(error: OSError) -> str:
    return error.strerror or str(error)
