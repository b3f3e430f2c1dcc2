from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.verdict.sentence import sentence
from calibrant.calibration.verdict.verdict import Cause

ECE = Measured(0.06, 0.02, 0.08)


def test_the_first_cause_is_part_of_it_and_too_few_rows_are_the_rows():
    causes = [Cause("too-few-rows", "With 40 rows."), Cause("over-confident", "It claims much. And more.")]
    assert sentence("care", ECE, causes, 400) == (
        "Usable with care: it claims much; its confidence is off by at most 8 points on average (400 rows)."
    )


def test_only_what_is_not_trusted_has_a_least_error():
    assert sentence("not-trusted", ECE, [], 400) == (
        "Not to be trusted: its confidence is off by 2 to 8 points on average (400 rows)."
    )
    assert (
        sentence("trusted", ECE, [], 400) == "Trusted: its confidence is off by at most 8 points on average (400 rows)."
    )
    assert sentence("unknown", ECE, [], 40) == (
        "Cannot be told with these 40 rows: the error of its confidence may be anything from 2 to 8 points."
    )


def test_without_an_interval_nothing_can_be_said():
    assert sentence("unknown", Measured(0.2), [], 1) == "Cannot be told with 1 row."
