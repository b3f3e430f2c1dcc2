import numpy as np

from calibrant.calibration.monitoring.alarms import AlarmState
from calibrant.calibration.monitoring.rolling import LabelledRow
from calibrant.calibration.verdict.served import served_verdict


def rows(n, right, *, claimed=0.8):
    """Claims of .1 above and below `claimed`, right as often as asked for, exactly."""
    return [
        LabelledRow(claimed + more, i < round((right + more) * n / 2), 0.5, 0.5)
        for more in (0.1, -0.1)
        for i in range(n // 2)
    ]


def alarms(**on):
    return {
        kind: AlarmState(kind in on, 4000, 3990, 1.0, 5.0, 0, on.get(kind))
        for kind in ("calibration", "confidence", "prior")
    }


def test_labels_that_agree_are_trusted_and_those_that_do_not_are_not():
    assert served_verdict(rows(2000, 0.8), alarms()).level == "trusted"
    found = served_verdict(rows(2000, 0.69), alarms())
    assert (found.level, found.causes[0].kind) == ("not-trusted", "over-confident")
    assert "claims 11 points more than it is right" in found.sentence


def test_an_alarm_leaves_it_at_best_usable_with_care():
    found = served_verdict(rows(2000, 0.8), alarms(calibration=1500))
    assert found.level == "care"
    assert "alarm at label 1,500" in found.sentence
    drifted = served_verdict(rows(2000, 0.8), alarms(prior=1200))
    assert (drifted.level, drifted.causes[0].kind) == ("care", "prior-shift")


def test_without_labels_nothing_can_be_told():
    found = served_verdict([], alarms(confidence=900))
    assert (found.level, [c.kind for c in found.causes]) == ("unknown", ["too-few-rows", "prior-shift"])
    assert found.sentence == "Cannot be told: 0 of the last answers have a label."


def test_a_few_labels_ask_for_more():
    found = served_verdict(rows(40, 0.85), alarms())
    assert found.level == "unknown"
    assert found.remedies[0].gives["more"] > 500
    assert np.isfinite(found.remedies[0].gives["rows"])


def test_what_is_wrong_is_to_be_tried_on_the_log_and_what_is_right_is_left():
    (remedy,) = served_verdict(rows(2000, 0.69), alarms()).remedies
    assert (remedy.kind, remedy.command, remedy.gives) == ("recalibrate", None, None)
    assert served_verdict(rows(2000, 0.8), alarms()).remedies == ()
    assert [r.kind for r in served_verdict(rows(40, 0.85), alarms()).remedies] == ["labels"]
