"""Answer alone or ask a human: counted by hand, the cheapest line by trying all of them."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.conformal.abstain import abstain_for_risk
from calibrant.dashboard.numbers.decide import answering


def test_a_line_splits_the_rows_as_counting_does(run, probabilities) -> None:  # type: ignore[no-untyped-def]
    probs, labels = probabilities
    confidence, right = probs.max(axis=1), probs.argmax(axis=1) == labels
    for threshold in (0.0, 0.37, 0.9, float(np.sort(confidence)[1234]), 1.0):
        found = answering.split(run[2], threshold)
        taken = confidence >= threshold
        assert (found.answered, found.wrong) == (taken.sum(), (taken & ~right).sum())
        assert (found.rows, found.handed) == (len(labels), (~taken).sum())
        if found.error is not None and found.error.low is not None and found.error.high is not None:
            assert found.error.low < (taken & ~right).sum() / taken.sum() < found.error.high
    assert answering.split(run[2], 1.1).error is None


def test_the_cheapest_line_costs_less_than_any_other(run, probabilities) -> None:  # type: ignore[no-untyped-def]
    probs, labels = probabilities
    confidence, right = probs.max(axis=1), probs.argmax(axis=1) == labels
    for wrong, handed in ((20.0, 1.0), (3.0, 1.0), (1.0, 5.0), (1e6, 0.1)):
        found = answering.cheapest(run[2], wrong, handed)
        cost = found.cost(wrong, handed)
        for threshold in np.append(np.linspace(0, 1, 201), 1.1):
            taken = confidence >= threshold
            assert cost <= 1000 * (wrong * (taken & ~right).sum() + handed * (~taken).sum()) / len(labels) + 1e-9
    assert answering.cheapest(run[2], 1.0, 5.0).handed == 0
    assert answering.cheapest(run[2], 1.0, 0.0).answered == 0


def test_a_calibrated_answer_is_worth_it_where_its_risk_costs_less_than_a_human() -> None:
    assert answering.worth_answering(20, 1) == pytest.approx(0.95)  # 5 % of 20 is 1
    assert answering.worth_answering(1, 5) == 0
    assert answering.worth_answering(0, 1) == 0


def test_the_proven_line_is_that_of_the_chain(run, probabilities) -> None:  # type: ignore[no-untyped-def]
    assert answering.proven(run[2], 0.05) == abstain_for_risk(*probabilities, risk=0.05)


def test_what_crosses_the_line_is_between_its_two_places(run, probabilities) -> None:  # type: ignore[no-untyped-def]
    probs, labels = probabilities
    confidence = probs.max(axis=1)
    index = answering.crossing(run[2], 0.8, 0.6)
    assert sorted(index) == np.flatnonzero((confidence >= 0.6) & (confidence < 0.8)).tolist()
    right = (probs.argmax(axis=1) == labels)[index]
    assert right.tolist() == sorted(right.tolist())
    above, below = answering.beside_the_line(run[2], 0.7, 3)
    assert confidence[above].tolist() == sorted(confidence[confidence >= 0.7])[:3]
    assert confidence[below].tolist() == sorted(confidence[confidence < 0.7])[::-1][:3]


def test_the_curve_goes_from_the_surest_to_all_rows(run) -> None:  # type: ignore[no-untyped-def]
    drawn = answering.drawn(run[2])
    assert drawn.share[-1] == 1
    assert len(drawn.share) <= answering.POINTS
    assert (np.diff(drawn.share) > 0).all()
    assert ((drawn.low <= drawn.error) & (drawn.error <= drawn.high)).all()


def test_a_threshold_is_rounded_up_to_the_step_of_the_slider() -> None:
    assert answering.percent_up(0.93412) == 93.5
    assert answering.percent_up(0.935) == 93.5
    assert answering.percent_up(0.99999) == 100.0
