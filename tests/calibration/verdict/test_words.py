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


def test_an_interval_that_is_a_point_is_not_said():
    """A map with one answer for all rows leaves nothing to see on the rows it was fitted on: that is no certainty."""
    assert span(Measured(0.0, 0.0, 0.0, null=0.0065)) == "0 % (chance explains 0.7)"
