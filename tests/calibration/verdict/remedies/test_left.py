import numpy as np

from calibrant.calibration.evaluation import evaluate
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.calibration.verdict.case import Case, JudgedRows
from calibrant.calibration.verdict.remedies.left import left_off
from calibrant.calibration.verdict.verdict import Cause

NAMES = ("auk", "bittern", "crane", "dunlin")


def judged(claims, right, groups):
    """400 rows predicted as each of four classes with these claims, of which these shares are right, exactly."""
    p = np.repeat(
        [[(1 - c) / 3] * k + [c] + [(1 - c) / 3] * (3 - k) for k, c in enumerate(claims)], 400, axis=0
    )  # fmt: skip
    y = np.concatenate([np.where(np.arange(400) < round(400 * s), k, (k + 1) % 4) for k, s in enumerate(right)])
    z = np.log(p)
    s = statistics_of(z, y)
    return Case(evaluate(s), s, NAMES, {"rare": (2, 3)}), JudgedRows(z, z, y, len(y), groups=groups)


def cause(kind, name, column=None):
    return Cause(kind, "", {"name": name, **({} if column is None else {"column": column})})


def test_what_is_still_off_is_said_with_its_side_and_the_rest_is_not():
    camera = np.repeat(["old", "new"], 800).tolist()
    case, rows = judged([0.7, 0.7, 0.6, 0.7], [0.7, 0.5, 0.8, 0.72], {"camera": camera})

    def left(*causes, margin=0.05):
        return left_off(case, causes, rows, rows.judged, margin=margin)

    assert left(cause("class", "auk"), cause("class", "dunlin")) is None
    assert left(cause("class", "bittern")) == 'Left then: "bittern" claims 20 more; let a person check it.'
    assert left(cause("group", "rare")) == 'Left then: "rare" claims 11 less; let a person check it.'  # (.2 + .02) / 2
    assert left(cause("group", "old", "camera")) == 'Left then: camera "old" claims 10 more; let a person check it.'
    assert left(cause("class", "bittern"), cause("class", "crane"), cause("group", "rare")) == (
        'Left then: "bittern" claims 20 more, "crane" claims 20 less, and 1 more are off; let a person check them.'
    )
    assert left(cause("class", "bittern"), margin=0.21) is None
    assert left(cause("over-confident", "bittern")) is None


def test_a_column_that_the_rows_do_not_have_and_a_class_that_is_no_longer_answered_leave_nothing():
    case, rows = judged([0.7, 0.7, 0.7, 0.7], [0.7, 0.2, 0.7, 0.7], {})
    assert left_off(case, [cause("group", "old", "camera")], rows, rows.judged, margin=0.05) is None
    after = rows.judged.copy()
    after[:, 1] = -50.0
    assert left_off(case, [cause("class", "bittern")], rows, after, margin=0.05) is None
