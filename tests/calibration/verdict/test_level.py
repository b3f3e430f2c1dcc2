from collections import Counter

import numpy as np
import pytest

from calibrant.calibration.evaluation import gap_sample
from calibrant.calibration.intervals.binned import measure_gaps
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.metrics.binned_errors import ece_of
from calibrant.calibration.statistics.accumulate import statistics_of_probabilities
from calibrant.calibration.verdict.level import capped, level_of


@pytest.mark.parametrize(
    ("low", "high", "level"),
    [
        (0.06, 0.2, "not-trusted"), (0.0, 0.05, "trusted"), (0.05, 0.05, "trusted"), (0.05, 0.1, "care"),
        (0.04, 0.11, "unknown"), (None, None, "unknown"),
    ],
)  # fmt: skip
def test_the_interval_of_the_error_and_the_margin_give_the_level(low, high, level):
    assert level_of(Measured(0.08, low, high), 0.05) == level


def test_luck_is_no_proof():
    """Of 40 rows chance alone explains 8 points: an interval that ends below says nothing."""
    assert level_of(Measured(0.0, 0.0, 0.01, null=0.08), 0.05) == "care"
    assert level_of(Measured(0.0, 0.0, 0.01, null=0.11), 0.05) == "unknown"


def test_a_cap_lowers_only_trust():
    assert [capped(x) for x in ("trusted", "care", "unknown", "not-trusted")] == [
        "care",
        "care",
        "unknown",
        "not-trusted",
    ]


def levels(gap: float, rows: int, sims: int = 60) -> Counter[str]:
    """Of data sets of two classes whose claims are all off by `gap`."""
    rng = np.random.default_rng([round(100 * gap), rows])
    found: Counter[str] = Counter()
    for _ in range(sims):
        claimed = rng.uniform(0.6, 0.95, rows)
        labels = (rng.random(rows) >= claimed - gap).astype(int)
        s = statistics_of_probabilities(np.stack([claimed, 1 - claimed], 1), labels)
        ece = measure_gaps(gap_sample(s, 15), "sum", value=ece_of(s.bins(15)))
        found[level_of(ece, 0.05)] += 1
    return found


@pytest.mark.slow  # 3 s; bench/verdict.py is the long form of it
def test_calibrated_sets_are_not_distrusted_and_large_errors_never_trusted() -> None:
    """Seeds are fixed. At the rates of the bench (.002 and .93) the bars would fail in .0002 and .04 of seeds."""
    calm, few, enough = levels(0.0, 300), levels(0.1, 100), levels(0.1, 1500)
    assert calm["not-trusted"] <= 3  # 5 %
    assert few["trusted"] == enough["trusted"] == 0
    assert enough["not-trusted"] >= 54  # 90 %, above the 799 rows that the formula asks for
