import numpy as np

from calibrant.calibration.evaluation import evaluate
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.calibration.verdict.case import Case
from calibrant.calibration.verdict.remedies.more_labels import more_labels


def case(*, n):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    s = statistics_of(1.5 * (1.5 * np.eye(3)[y] + rng.normal(size=(n, 3))), y)
    return Case(evaluate(s), s)


def test_labels_are_counted_beyond_those_that_are_there():
    few = more_labels(case(n=100), margin=0.05)
    assert few.gives["more"] == few.gives["rows"] - 100 > 0
    assert more_labels(case(n=2000), margin=0.05).gives["more"] == 0
