from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.verdict.causes.confidence import excess_cause, few_rows_cause, halves_cause
from calibrant.calibration.verdict.causes.excess import Excess


def test_a_gap_beyond_chance_has_its_sign_named():
    assert excess_cause(Excess(0.11, 0.02, 1e-6, 400)).text == (
        "It claims 11 points more than it is right; chance explains 3.9."
    )
    assert excess_cause(Excess(-0.11, 0.02, 1e-6, 400)).kind == "under-confident"
    assert excess_cause(Excess(0.11, 0.1, 0.02, 40)) is None


def test_gaps_that_cancel_are_named_by_the_larger_half():
    cause = halves_cause(Measured(0.08, true_error=0.07), Measured(0.05, true_error=0.04))
    assert cause.kind == "over-confident"
    assert "7 points of the error lie above the truth, 4 points below" in cause.text
    assert halves_cause(Measured(0.02), Measured(0.05)).kind == "under-confident"


def test_rows_are_too_few_where_more_could_change_the_level():
    wide = Measured(0.06, 0.0, 0.13)
    assert few_rows_cause("unknown", wide, 40).text == "With 40 rows the error may be anything from 0 to 13 points."
    assert few_rows_cause("care", Measured(0.04, 0.0, 0.08), 300) is not None
    assert few_rows_cause("care", Measured(0.06, 0.02, 0.08), 5000) is None
    assert few_rows_cause("trusted", Measured(0.01, 0.0, 0.02), 5000) is None
    assert few_rows_cause("unknown", Measured(0.2), 1).text == "1 row says nothing."
    untold = Measured(0.2).without_interval("these rows are worth 4.0, too few to tell")
    assert (
        few_rows_cause("unknown", untold, 90).text == "Nothing can be told: these rows are worth 4.0, too few to tell."
    )
