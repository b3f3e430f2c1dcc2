"""The class shares of the rows that a server answered, before anybody has labelled them."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.label_shift.estimate import PriorEstimate, PriorEstimator
from calibrant.calibration.monitoring.baseline import KnownRows
from calibrant.errors import DataError

MOST_CLASSES = 200  # beyond, an estimate takes seconds
MOST_BYTES = 4 << 20  # of served rows that are kept for it


class ServedPrior:
    """Follows the last `window` rows; `known` are labelled ones as the file would answer them."""

    def __init__(self, known: KnownRows, window: int) -> None:
        classes = known.log_p.shape[1]
        self._rows: deque[NDArray[np.float32]] = deque(maxlen=max(1, min(window, MOST_BYTES // (4 * classes))))
        self._known = known
        self._estimator: PriorEstimator | None = None

    def answered(self, log_p: NDArray[np.floating]) -> None:
        self._rows.extend(np.asarray(log_p[-(self._rows.maxlen or 1) :], np.float32))

    def rows(self) -> NDArray[np.float32]:
        return np.array(self._rows, np.float32).reshape(-1, self._known.log_p.shape[1])

    def estimate(self, rows: NDArray[np.float32]) -> PriorEstimate:
        """Of `rows()`. A DataError says why nothing can be told."""
        if rows.shape[1] > MOST_CLASSES:
            raise DataError(f"{rows.shape[1]:,} classes; shares are estimated for at most {MOST_CLASSES}")
        if self._estimator is None:
            self._estimator = PriorEstimator(self._known.log_p, self._known.labels)
        return self._estimator(rows)
