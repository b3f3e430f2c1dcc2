import numpy as np
import pytest

from calibrant.calibration.evaluation import evaluate
from calibrant.calibration.populations import Shift
from calibrant.calibration.statistics.accumulate import statistics_of_probabilities
from calibrant.calibration.verdict.case import Case
from calibrant.calibration.verdict.judge import judge


def case(claimed, right, rows=4000, **facts):
    """Two classes; `rows` rows that claim as much, of which a share is right, exactly."""
    probs = np.tile([claimed, 1 - claimed], (rows, 1))
    labels = (np.arange(rows) >= round(right * rows)).astype(int)
    statistics = statistics_of_probabilities(probs, labels)
    return Case(evaluate(statistics), statistics, **facts)


def test_claims_that_hold_are_trusted_without_a_cause():
    found = judge(case(0.8, 0.8))
    assert (found.level, found.causes, found.remedies) == ("trusted", (), ())
    assert found.sentence.startswith("Trusted: its confidence is off by at most ")


def test_eleven_points_too_much_is_said_with_what_chance_explains():
    found = judge(case(0.8, 0.69, rows=400))
    # 1.96 sqrt(.8 * .2 / 400) = .0392
    assert found.sentence.startswith(
        "Not to be trusted: it claims 11 points more than it is right; chance explains 3.9; its confidence is off by "
    )
    assert [c.kind for c in found.causes] == ["over-confident"]
    assert found.causes[0].evidence["gap"] == pytest.approx(0.11)


def test_claiming_less_than_it_keeps_is_under_confidence():
    found = judge(case(0.6, 0.8))
    assert found.level == "not-trusted"
    assert found.causes[0].kind == "under-confident"
    assert "claims 20 points less than it is right" in found.sentence


def test_a_few_rows_cannot_tell():
    found = judge(case(0.8, 0.8, rows=40))
    assert found.level == "unknown"
    assert found.sentence.startswith("Cannot be told with these 40 rows")
    assert judge(case(0.8, 1.0, rows=1)).sentence == "Cannot be told with 1 row."


@pytest.mark.parametrize("facts", [{"in_sample": True}, {"shift": Shift(0.001, 0.3)}])
def test_rows_already_seen_or_with_other_class_shares_are_at_best_usable_with_care(facts):
    assert judge(case(0.8, 0.8, **facts)).level == "care"
    assert judge(case(0.8, 0.6, **facts)).level == "not-trusted"


def test_the_margin_moves_the_level():
    assert [judge(case(0.8, 0.74), margin=m).level for m in (0.02, 0.05, 0.1)] == ["not-trusted", "care", "trusted"]
