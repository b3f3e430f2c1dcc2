"""Which sites, cameras or patients are named."""

from __future__ import annotations

import numpy as np

from calibrant.calibration.evaluation import evaluate
from calibrant.calibration.statistics.accumulate import statistics_of_probabilities
from calibrant.calibration.verdict.case import Case
from calibrant.calibration.verdict.causes.row_groups import row_groups_off
from calibrant.calibration.verdict.judge import judge


def case(claims_less: tuple[float, ...], rows: int = 600) -> Case:
    """Sites a, b, ...: each claims .6 or .9 in two classes, and is right on as many more rows, exactly."""
    claim = np.where(np.arange(rows) < rows // 2, 0.6, 0.9)
    side = np.arange(rows) % 2
    probs = np.where(np.eye(2)[side] > 0, claim[:, None], 1 - claim[:, None])
    place = np.arange(rows) % (rows // 2) / (rows // 2)
    labels = [np.where(place + 1e-9 < claim + more, side, 1 - side) for more in claims_less]
    p, y = np.tile(probs, (len(labels), 1)), np.concatenate(labels)
    s = statistics_of_probabilities(p, y)
    site = np.repeat([chr(ord("a") + i) for i in range(len(labels))], rows)
    return Case(evaluate(s), s, ("cat", "dog"), row_groups=evaluate(p, y, by={"site": site}).row_groups)


def names(found: list) -> list[str]:
    return [cause.evidence["name"] for cause in found]


def test_the_site_that_is_off_is_named_with_its_figures() -> None:
    (cause,) = row_groups_off(case((0, -0.3, 0)), margin=0.05)
    assert cause.text.startswith('On the rows of site "b" it claims 30 points more than it is right, elsewhere it is')
    assert abs(cause.evidence["gap"] - 0.3) < 1e-9
    assert abs(cause.evidence["elsewhere"]) < 1e-9


def test_the_clearest_comes_first_and_those_that_are_right_are_not_named() -> None:
    assert names(row_groups_off(case((0, -0.075, 0, 0.1)), margin=0.05)) == ["d", "b"]


def test_sites_that_are_all_off_alike_a_small_error_and_few_rows_are_not_the_cause() -> None:
    assert row_groups_off(case((-0.2, -0.2, -0.2)), margin=0.05) == []
    assert row_groups_off(case((0, -0.04, 0), rows=6000), margin=0.05) == []
    assert row_groups_off(case((0, -0.2, 0), rows=20), margin=0.05) == []
    assert row_groups_off(case((-0.2,)), margin=0.05) == []  # one site is the whole


def test_errors_of_sites_that_cancel_leave_the_whole_usable_with_care() -> None:
    found = judge(case((0.1, -0.1), rows=3000))
    assert found.level == "care"
    assert [c.kind for c in found.causes] == ["group", "group"]
    assert judge(case((0, 0), rows=3000)).level == "trusted"
    assert f'its answers for site "{names(found.causes)[0]}"' in found.without_remedy


def test_a_site_that_makes_up_most_of_the_error_comes_before_the_whole() -> None:
    kinds = [c.kind for c in judge(case((0, 0, -0.3), rows=3000)).causes]
    assert kinds[:2] == ["group", "over-confident"]
    assert judge(case((-0.15, -0.15, -0.3), rows=3000)).causes[0].kind == "over-confident"
