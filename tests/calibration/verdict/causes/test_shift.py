import numpy as np

from calibrant.calibration.evaluation import evaluate
from calibrant.calibration.populations import Population
from calibrant.calibration.statistics.accumulate import statistics_of_probabilities
from calibrant.calibration.verdict.case import Case
from calibrant.calibration.verdict.causes.shift import one_class_cause, shift_cause

NAMES = ("auk", "crane").__getitem__


def test_the_class_that_changed_most_is_named():
    cause = shift_cause(Population.counted([900, 100]), Population.counted([500, 500]), NAMES, "calibrator")
    assert cause is not None
    assert cause.text == (
        'These rows have other class shares than its calibrator saw: "auk" makes up 50 % of them, 90 % there.'
    )
    assert cause.evidence["effect"] > 0.02


def test_like_shares_and_small_differences_are_no_shift():
    same = Population.counted([500, 500])
    assert shift_cause(same, Population.counted([480, 520]), NAMES, "calibrator") is None
    assert shift_cause(Population.counted([50_000, 50_000]), Population.counted([48_500, 51_500]), NAMES, None) is None


def test_it_says_whose_shares_they_are():
    seen = Population(np.array([0.9, 0.1]))
    for applied, words in (("correction", "it is corrected for"), (None, "in training")):
        cause = shift_cause(seen, Population.counted([500, 500]), NAMES, applied)
        assert cause is not None
        assert words in cause.text


def test_rows_of_a_single_class_cannot_stand_for_a_place_of_use():
    def cause(labels):
        s = statistics_of_probabilities(np.tile([0.8, 0.2], (len(labels), 1)), labels)
        return one_class_cause(Case(evaluate(s), s, ("auk", "crane")))

    found = cause([1] * 40)
    assert found is not None
    assert found.kind == "prior-shift"
    assert found.text.startswith('All 40 rows are of one class, "crane".')
    assert cause([0, 1] * 20) is None
    assert cause([1]) is None
