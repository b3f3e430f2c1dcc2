import numpy as np
import pytest

import calibrant.calibration
from calibrant.calibration.softmax import softmax
from calibrant.errors import CalibrantError


def rows(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    return 2 * (2 * np.eye(4)[y] + rng.normal(size=(n, 4))), y


def test_one_call_on_probabilities():
    z, y = rows()
    assert calibrant.calibration.verdict(softmax(z), y).level == "trusted"
    found = calibrant.calibration.verdict(softmax(3 * z), y)
    assert (found.level, found.causes[0].kind) == ("not-trusted", "over-confident")
    assert found.remedies[0].command == 'calibrant.calibration.fit("temperature", np.log(probs), labels)'
    assert found.remedies[0].gives["level"] == "trusted"


def test_a_calibrator_that_harms_is_seen_beside_what_was_before():
    z, y = rows()
    found = calibrant.calibration.verdict(softmax(0.3 * z), y, before=softmax(z))
    assert (found.causes[0].kind, found.remedies[0].kind) == ("harmful-calibrator", "leave-out")


def test_other_class_counts_than_it_was_fitted_on_are_a_shift_that_can_be_corrected():
    z, y = rows()
    counts = np.array([4000, 1000, 300, 100])
    found = calibrant.calibration.verdict(softmax(z + np.log(counts)), y, fitted_on=counts)
    assert (found.causes[0].kind, found.remedies[0].kind) == ("prior-shift", "adjust")
    assert found.remedies[0].gives["level"] == "trusted"


def test_stakes_decide_what_is_let_pass():
    z, y = rows()
    p = softmax(1.35 * z)
    assert calibrant.calibration.verdict(p, y, policy="low").at_least("care")
    assert calibrant.calibration.verdict(p, y, policy="high").level == "not-trusted"


def test_the_room_and_the_function_share_their_name():
    from calibrant.calibration.verdict.level import capped  # the room, whatever was called before

    assert capped("trusted") == "care"
    assert callable(calibrant.calibration.verdict)


def test_rows_that_do_not_fit_are_refused():
    z, y = rows(30)
    with pytest.raises(CalibrantError, match="before"):
        calibrant.calibration.verdict(softmax(z), y, before=softmax(z)[:10])
