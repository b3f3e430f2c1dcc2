"""The summary holds the numbers of the evaluation that it is of."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import evaluate
from calibrant.calibration.report.figures import Model
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.commands.fit.judge import summary


def test_three_of_four_are_right() -> None:
    z, y = np.asarray([[3.0, 0], [3, 0], [0, 3], [0, 3]]), np.asarray([0, 0, 1, 0])
    statistics = statistics_of(z, y)
    (found,) = summary([Model("test", evaluate(statistics), statistics)])
    assert found["rows"] == 4
    assert found["accuracy"]["value"] == pytest.approx(0.75)
    assert found["nll"]["value"] == pytest.approx(np.log1p(np.exp(-3)) + 3 / 4)
    assert found["verdict"] is None
