import numpy as np
import pytest

from calibrant.calibration.evaluation import evaluate
from calibrant.calibration.populations import Population
from calibrant.calibration.statistics.accumulate import statistics_of_probabilities
from calibrant.calibration.verdict.case import Case
from calibrant.calibration.verdict.judge import judge


def case(claimed, right, rows=4000, **facts):
    """Two classes, half of the rows predicted as each; half claim .1 more than `claimed`, half .1 less, and `right` is
    as far off for both, exactly."""
    quarter = rows // 4
    probs, labels = [], []
    for predicted in (0, 1):
        for more in (0.1, -0.1):
            p = np.full((quarter, 2), 1 - claimed - more)
            p[:, predicted] = claimed + more
            hit = np.arange(quarter) < round((right + more) * quarter)
            probs.append(p)
            labels.append(np.where(hit, predicted, 1 - predicted))
    statistics = statistics_of_probabilities(np.concatenate(probs), np.concatenate(labels))
    return Case(evaluate(statistics), statistics, **facts)


def test_claims_that_hold_are_trusted_without_a_cause():
    found = judge(case(0.8, 0.8))
    assert (found.level, found.causes, found.remedies) == ("trusted", (), ())
    assert found.sentence.startswith("Trusted: its confidence is off by at most ")


def test_eleven_points_too_much_is_said_with_what_chance_explains():
    found = judge(case(0.8, 0.69, rows=400))
    # 1.96 sqrt((.9 * .1 + .7 * .3) / 2 / 400) = .0380
    assert found.sentence.startswith(
        "Not to be trusted: it claims 11 points more than it is right; chance explains 3.8; its confidence is off by "
    )
    assert [c.kind for c in found.causes] == ["over-confident"]
    assert found.causes[0].evidence["gap"] == pytest.approx(0.11)


def test_claiming_less_than_it_keeps_is_under_confidence():
    found = judge(case(0.65, 0.85))
    assert found.level == "not-trusted"
    assert found.causes[0].kind == "under-confident"
    assert "claims 20 points less than it is right" in found.sentence


def test_a_few_rows_cannot_tell():
    found = judge(case(0.8, 0.85, rows=40))
    one = statistics_of_probabilities([[0.8, 0.2]], [0])
    one = Case(evaluate(one), one)
    assert found.level == "unknown"
    assert found.causes[0].kind == "too-few-rows"
    assert found.remedies[0].kind == "labels"
    assert found.sentence.startswith("Cannot be told with these 40 rows")
    assert judge(one).sentence == "Cannot be told with 1 row."


@pytest.mark.parametrize(
    "facts",
    [
        {"in_sample": True},
        {"meant": Population(np.array([0.9, 0.1])), "found": Population(np.array([0.5, 0.5])), "applied": "calibrator"},
    ],
)
def test_rows_already_seen_or_with_other_class_shares_are_at_best_usable_with_care(facts):
    assert judge(case(0.8, 0.8, **facts)).level == "care"
    assert judge(case(0.8, 0.6, **facts)).level == "not-trusted"


def test_the_margin_moves_the_level():
    assert [judge(case(0.8, 0.74), margin=m).level for m in (0.02, 0.05, 0.1)] == ["not-trusted", "care", "trusted"]


def test_rows_of_one_class_are_at_best_usable_with_care_and_ask_for_the_others():
    probs = np.tile([[0.9, 0.1], [0.7, 0.3]], (1000, 1))
    statistics = statistics_of_probabilities(probs, np.zeros(2000, int))
    found = judge(Case(evaluate(statistics), statistics, ("auk", "crane")))
    assert found.level == "not-trusted"
    assert [c.kind for c in found.causes] == ["prior-shift", "under-confident"]
    assert [(r.kind, r.text[:32]) for r in found.remedies] == [("labels", "Label rows of the other classes ")]
    right = Case(evaluate(statistics_of_probabilities(np.tile([0.99, 0.01], (2000, 1)), np.zeros(2000, int))),
                 statistics_of_probabilities(np.tile([0.99, 0.01], (2000, 1)), np.zeros(2000, int)))  # fmt: skip
    assert judge(right).level == "care"


def test_a_shift_is_looked_for_where_single_classes_are_off():
    """Errors of two classes that cancel: the whole is within the margin, the classes are not."""
    probs = np.repeat([[0.8, 0.2], [0.2, 0.8]], 1000, axis=0)
    labels = np.concatenate([np.arange(1000) >= 700, np.arange(1000) < 900]).astype(int)
    statistics = statistics_of_probabilities(probs, labels)
    facts = {"meant": Population(np.array([0.9, 0.1])), "found": Population(np.array([0.4, 0.6])), "applied": None}
    kinds = [c.kind for c in judge(Case(evaluate(statistics), statistics, **facts, trials=())).causes]
    assert "prior-shift" not in kinds  # nothing shows that correcting for it helps
    known = {**facts, "applied": "calibrator"}
    assert "prior-shift" in [c.kind for c in judge(Case(evaluate(statistics), statistics, **known)).causes]


def test_a_single_class_comes_first_where_all_rows_together_are_within_the_margin():
    """200 rows predicted as class 0 claim 90 % and half are right; of 19,800 others claiming 60 or 97 %, 59 and 96."""
    claims = np.repeat([0.1, 0.6, 0.97], [200, 10_000, 9_800])  # of class 1
    right = np.concatenate([np.arange(n) < hits for n, hits in ((200, 100), (10_000, 5_900), (9_800, 9_408))])
    statistics = statistics_of_probabilities(np.stack([1 - claims, claims], axis=1), right.astype(np.int64))
    found = judge(Case(evaluate(statistics), statistics, ("rare", "common")))
    assert found.level == "care"
    assert [c.kind for c in found.causes] == ["class", "over-confident"]
    assert found.causes[0].evidence["name"] == "rare"


def test_errors_that_cancel_in_the_mean_are_said_as_such_though_the_mean_is_clearly_off():
    """Those that claim 60 % and those that claim 95 % are right in 80 %: 20 too few, 15 too many, 2.5 in the mean."""
    claims = np.repeat([0.6, 0.95], 5000)
    statistics = statistics_of_probabilities(
        np.stack([1 - claims, claims], axis=1), np.tile(np.arange(5000) < 4000, 2).astype(np.int64)
    )
    first = judge(Case(evaluate(statistics), statistics)).causes[-1]
    assert first.kind == "under-confident"
    assert first.text.startswith("It claims too much at some confidences and too little at others")
    assert first.evidence == pytest.approx({"over": 0.075, "under": 0.1}, abs=0.01)


def test_a_clear_error_on_too_few_rows_to_mend_it_asks_for_more():
    found = judge(case(0.85, 0.65, rows=60))
    assert (found.level, found.causes[0].kind) == ("not-trusted", "over-confident")
    assert [r.kind for r in found.remedies] == ["labels"]
