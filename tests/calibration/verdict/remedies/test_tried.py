from dataclasses import replace

import numpy as np

from calibrant.calibration.evaluation import evaluate
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.calibration.verdict.case import Case, JudgedRows, Trial
from calibrant.calibration.verdict.remedies.tried import tried
from calibrant.calibration.verdict.verdict import Cause
from calibrant.errors import DataError


def case(*trials, n=2000):
    """Twice as sure as is right."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    z = 1.5 * (1.5 * np.eye(3)[y] + rng.normal(size=(n, 3)))
    s = statistics_of(2 * z, y)
    return Case(evaluate(s), s, rows=lambda: JudgedRows(2 * z, 2 * z, y, n), trials=trials)


def trial(kind, scale, against="over-confident"):
    return Trial(kind, frozenset({against}), "Try", "call", lambda rows: scale * rows.plain)


def test_what_helps_is_offered_with_what_it_gives():
    (found,) = tried(case(trial("recalibrate", 0.5)), ["over-confident"], margin=0.05)
    assert found.remedy.gives["level"] == "trusted"
    assert found.remedy.gives["nll"]["high"] < 0
    assert found.remedy.gives["rows"] == 2000
    assert found.remedy.command == "call"


def test_what_does_not_help_is_not():
    assert tried(case(trial("recalibrate", 1.0)), ["over-confident"], margin=0.05) == []
    assert tried(case(trial("recalibrate", 2.0)), ["over-confident"], margin=0.05) == []


def test_a_lower_nll_is_no_help_where_the_error_of_calibration_grows():
    """Always right, and 69 % sure of it: the NLL falls to .37, the ECE rises to .31."""
    right = Trial(
        "recalibrate", frozenset({"over-confident"}), "Try", "call", lambda rows: 1.5 * np.eye(3)[rows.labels]
    )
    assert tried(case(right), ["over-confident"], margin=0.05) == []


def test_only_what_is_against_a_cause_is_tried():
    assert tried(case(trial("adjust", 0.5, "prior-shift")), ["over-confident"], margin=0.05) == []


def test_a_map_that_the_rows_do_not_carry_is_no_remedy():
    def fails(rows):
        raise DataError("too few")

    broken = Trial("recalibrate", frozenset({"over-confident"}), "Try", None, fails)
    assert tried(case(broken), ["over-confident"], margin=0.05) == []


def test_a_last_resort_is_tried_only_where_the_others_leave_half_of_the_error():
    last = replace(trial("recalibrate", 0.5), command="bins", after=frozenset({"recalibrate"}))

    def calls(*trials):
        return [t.remedy.command for t in tried(case(*trials), ["over-confident"], margin=0.05)]

    assert calls(last, trial("recalibrate", 0.5)) == ["call"]
    assert calls(last, trial("recalibrate", 0.95)) == ["call", "bins"]
    assert calls(last) == ["bins"]
    elsewhere = trial("leave-out", 0.5)
    assert calls(last, elsewhere) == ["call", "bins"]


def test_a_remedy_that_leaves_a_group_off_says_so_and_promises_no_trust():
    """Halved logits are right for all rows together; of those of one camera only half are right as often as claimed."""
    plain = case(trial("recalibrate", 0.5), n=4000)
    rows = plain.rows()
    right = np.flatnonzero(rows.plain.argmax(axis=1) == rows.labels)
    camera = np.full(len(rows), "new", dtype=object)
    camera[np.flatnonzero(rows.plain.argmax(axis=1) != rows.labels)[:100]] = "old"
    camera[right[:100]] = "old"
    apart = replace(plain, rows=lambda: replace(rows, groups={"camera": camera.tolist()}))
    named = [Cause("group", "", {"name": "old", "column": "camera"})]
    (found,) = tried(apart, ["over-confident"], margin=0.05, causes=named)
    (unnamed,) = tried(apart, ["over-confident"], margin=0.05)
    assert '. Left then: camera "old" claims ' in found.remedy.text
    assert (found.remedy.gives["level"], unnamed.remedy.gives["level"]) == ("care", "trusted")
    assert "Left then" not in unnamed.remedy.text
