"""What a server needs to watch features: where to look, and what is normal there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.monitoring.feature_alarm import FEWEST_ROWS, FeatureWatch, NormalScores
from calibrant.calibration.monitoring.feature_scores import MOST_ROWS, Directions


@dataclass(frozen=True)
class WatchedFeatures:
    directions: Directions
    watch: FeatureWatch

    @classmethod
    def of(cls, normal: NDArray[np.float32] | None, width: int, *, seed: int) -> WatchedFeatures:
        """`normal`: (N, D) rows that count as normal. Every other one makes the axes, the rest says how they are
        spread: among its own rows an axis lies too well. Without enough of them the first served rows count as normal,
        on random axes."""
        if normal is None or len(normal) < 2 * FEWEST_ROWS:
            directions = Directions.at_random(width, seed)
            return cls(directions, FeatureWatch(directions.scores_a_row))
        kept = normal[np.linspace(0, len(normal) - 1, min(len(normal), MOST_ROWS)).round().astype(np.int64)]
        directions = Directions.of(kept[::2], seed)
        scores = NormalScores.of(directions.scores(kept[1::2]))
        return cls(directions, FeatureWatch(directions.scores_a_row, scores))
