"""What follows from what the graph returned, by hand."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from calibrant.artifacts.model_card import Prior
from calibrant.errors import DataError
from calibrant.serve.engine.deployed_formula import DeployedFormula
from calibrant.serve.engine.knobs import Knobs
from calibrant.serve.engine.result import Result, answer, top_classes

NAMES = ("a", "b", "c", "d")


def of(tiny: ModuleType, logits: Any, *, more: Any = None, knobs: Any = None, **changes: Any) -> Result:
    """Of a file without calibrator and prior correction, whose logits are the network's."""
    given = {"classes": NAMES, "calibrator": None, "prior": Prior(), "abstain_below": None, "conformal": None} | changes
    card = tiny.card(**given)
    outputs = {"logits": np.asarray(logits, np.float32), **(more or {})}
    return answer(card, DeployedFormula.of(card), outputs, Knobs.parse(knobs or {}))


def test_the_label_is_the_most_probable_class_and_the_first_of_equals(tiny: ModuleType) -> None:
    found = of(tiny, [[0, 3, 3, 1], [0, 0, 0, 9]])
    assert found.labels.tolist() == [1, 3]
    assert found.names == ("b", "d")
    assert found.top[0].tolist() == [1, 2, 3, 0]
    assert found.confidence == pytest.approx(found.probabilities.max(1))


def test_an_answer_with_exactly_the_threshold_is_given(tiny: ModuleType) -> None:
    """Confidence 1/4 where all are equal, in float32 too."""
    at = of(tiny, np.zeros((1, 4)), knobs={"abstain_below": 0.25})
    above = of(tiny, np.zeros((1, 4)), knobs={"abstain_below": 0.26})
    assert (at.abstained.tolist(), above.abstained.tolist()) == ([False], [True])
    assert above.names == ("a",)  # the label is still given


def test_a_request_may_abstain_where_the_file_does_not_and_the_other_way(tiny: ModuleType) -> None:
    assert of(tiny, np.zeros((1, 4)), abstain_below=0.3).abstained.tolist() == [True]
    assert of(tiny, np.zeros((1, 4)), abstain_below=0.3, knobs={"abstain_below": 0.0}).abstained.tolist() == [False]
    assert of(tiny, np.zeros((1, 4))).abstained.tolist() == [False]


def test_the_energy_is_minus_log_sum_exp_and_larger_is_more_unusual(tiny: ModuleType) -> None:
    found = of(tiny, [[0, 0, 0, 0], [5, 0, 0, 0]], knobs={"ood": True})
    assert found.ood_score is not None
    assert found.ood_score.tolist() == pytest.approx([-np.log(4), -np.log(np.exp(5) + 3)])
    assert found.ood_score[0] > found.ood_score[1]


def test_a_score_above_the_files_threshold_is_foreign(tiny: ModuleType) -> None:
    scores = np.array([[0.5], [0.6], [0.7]], np.float32)
    found = of(tiny, np.zeros((3, 4)), more={"ood_score": scores}, ood={"kind": "energy", "threshold": 0.65})
    assert found.ood is not None
    assert found.ood.tolist() == [False, False, True]
    assert of(tiny, np.zeros((3, 4)), more={"ood_score": scores}, ood={"kind": "energy"}).ood is None


def test_the_label_belongs_to_its_prediction_set_whatever_the_threshold(tiny: ModuleType) -> None:
    conformal = {"0.1": {"kind": "lac", "threshold": 0.05}}
    found = of(tiny, [[1, 0, 0, 0]], conformal=conformal, knobs={"coverage": 0.9})
    assert found.sets() == (("a",),)


def test_what_is_not_a_number_is_no_answer(tiny: ModuleType) -> None:
    with pytest.raises(DataError, match="answer to row 1 is not a number"):
        of(tiny, [[0, 0, 0, 0], [np.nan, 0, 0, 0]])


def test_no_more_classes_are_listed_than_there_are() -> None:
    assert top_classes(np.array([[0.2, 0.8]], np.float32), 5).tolist() == [[1, 0]]


def test_members_of_a_set_come_most_probable_first(tiny: ModuleType) -> None:
    found = replace(
        of(tiny, [[0, 2, 1, 3], [5, 0, 0, 0]]), prediction_sets=np.array([[False, True, True, True], [True] * 4])
    )
    assert found.sets() == (("d", "b", "c"), ("a", "b", "c", "d"))
    assert of(tiny, [[0, 2, 1, 3]]).sets() == ((),)
