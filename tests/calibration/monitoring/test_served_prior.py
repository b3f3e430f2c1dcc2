from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.monitoring.baseline import KnownRows
from calibrant.calibration.monitoring.served_prior import MOST_CLASSES, ServedPrior
from calibrant.calibration.softmax import log_softmax
from calibrant.errors import DataError


def draw(prior: list[float], rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(len(prior), rows, p=prior)
    return log_softmax(2 * (rng.normal(size=(rows, len(prior))) + 2 * np.eye(len(prior))[labels])), labels


def test_only_the_last_rows_count() -> None:
    follower = ServedPrior(KnownRows.of(*draw([1 / 3] * 3, 900, 0)), window=500)
    follower.answered(draw([0.1, 0.1, 0.8], 2000, 1)[0])
    follower.answered(draw([0.8, 0.1, 0.1], 300, 2)[0])
    follower.answered(draw([0.8, 0.1, 0.1], 200, 3)[0])
    assert follower.rows().shape == (500, 3)
    found = follower.estimate(follower.rows())
    assert found.shifted
    assert found.target == pytest.approx([0.8, 0.1, 0.1], abs=0.06)


def test_what_cannot_be_told_is_said() -> None:
    follower = ServedPrior(KnownRows.of(*draw([1 / 3] * 3, 900, 0)), window=500)
    with pytest.raises(DataError, match="0 rows are too few"):
        follower.estimate(follower.rows())
    classes = MOST_CLASSES + 1
    wide = ServedPrior(KnownRows.of(np.zeros((1, classes)), np.zeros(1, np.int64)), window=10)
    with pytest.raises(DataError, match="at most 200"):
        wide.estimate(wide.rows())


def test_memory_is_bounded_for_many_classes() -> None:
    wide = ServedPrior(KnownRows.of(np.zeros((1, 1000)), np.zeros(1, np.int64)), window=100_000)
    wide.answered(np.zeros((3000, 1000), np.float32))
    assert wide.rows().nbytes <= 4 << 20
