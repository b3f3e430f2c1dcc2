import pytest

from calibrant.calibration.intervals.measured import Measured
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
