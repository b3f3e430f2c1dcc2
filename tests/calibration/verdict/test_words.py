import pytest

from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.verdict.words import figure, more_or_less, points, span


@pytest.mark.parametrize(("share", "said"), [(0.1149, "11"), (0.0995, "10"), (0.0994, "9.9"), (0.03, "3"), (0.0, "0")])
def test_figures_carry_no_more_digits_than_they_can(share, said):
    assert figure(share) == said


def test_points_agree_with_their_number():
    assert (points(0.01), points(0.02)) == ("1 point", "2 points")
    assert more_or_less(-0.04) == "4 points less than it is right"


def test_an_error_is_said_with_its_interval_and_chance():
    assert span(Measured(0.02, 0.0, 0.031, null=0.018)) == "2 % (0 to 3.1; chance explains 1.8)"
