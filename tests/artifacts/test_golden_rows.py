"""Golden rows: the questions, what is kept of the answers, and when a file answers otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calibrant.artifacts import golden_rows
from calibrant.artifacts.model_card import InputSpec, ModelCard, rows_preprocessing
from calibrant.errors import FormatError
from calibrant.images.preprocessing import Preprocessing


def card(**changes: Any) -> ModelCard:
    return replace(ModelCard(("auk", "bittern", "crane"), Preprocessing((12, 20), 20)), **changes)


def answers(rows: Any) -> Any:
    """Three shares of the mean, which differ from row to row."""
    mean = rows.reshape(len(rows), -1).mean(axis=1) / 255
    return np.stack([0.5 * mean, 0.2 + 0 * mean, 0.8 - 0.5 * mean], axis=1)


def test_questions_are_as_the_graph_takes_them_and_differ() -> None:
    pixels = golden_rows.questions(card())
    assert (pixels.shape, pixels.dtype) == ((4, 12, 20, 3), np.uint8)
    assert len({row.tobytes() for row in pixels}) == 4
    floats = golden_rows.questions(card(input=InputSpec(dtype="float32", layout="NCHW")))
    assert (floats.shape, floats.dtype) == ((4, 3, 12, 20), np.float32)
    np.testing.assert_array_equal(floats, card().preprocessing.normalise(pixels))
    numbers = golden_rows.questions(card(input=InputSpec("rows", "float32", "NF"), preprocessing=rows_preprocessing(7)))
    assert (numbers.shape, numbers.dtype) == ((4, 7), np.float32)
    assert len({row.tobytes() for row in numbers}) == 4


def test_questions_never_change_since_files_hold_their_answers() -> None:
    """One pixel by hand: row 2, y 3, x 10, green: slope 255 (10 * 3 // 20 + 3 * 1 // 12) + 61 + 194 + 23 = 533."""
    assert golden_rows.questions(card())[2, 3, 10, 1] == (255 * (10 * 3 // 20) + 61 + 2 * 97 + 23) % 256


def test_what_is_kept_is_found_again_and_a_moved_answer_is_told() -> None:
    block = golden_rows.record(answers, card())
    assert block is not None
    assert block["classes"][0][0] == int(answers(golden_rows.questions(card()))[0].argmax())
    stored = ModelCard.from_json(card(golden=block).to_json(), where="x")
    assert golden_rows.difference(answers, stored) == pytest.approx(0, abs=1e-6)
    assert golden_rows.difference(lambda rows: answers(rows) + [0, 0.03, 0], stored) == pytest.approx(0.03, abs=1e-6)
    assert golden_rows.difference(lambda rows: answers(rows) * np.nan, stored) == np.inf
    assert golden_rows.difference(answers, card()) is None


def test_a_file_whose_knobs_must_be_given_is_not_asked() -> None:
    assert golden_rows.record(answers, card(knobs="required")) is None


def test_int8_may_differ_by_more_than_floats() -> None:
    assert golden_rows.tolerance(card()) < golden_rows.tolerance(card(precision={"dtype": "int8"}))


@pytest.mark.parametrize(
    "block",
    [{}, {"classes": [[3]], "probabilities": [[0.1]]}, {"classes": [[0]], "probabilities": [[0.1, 0.2]]},
     {"classes": "x", "probabilities": [[0.1]]}],
)  # fmt: skip
def test_a_block_of_another_kind_is_damage(block: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="golden"):
        ModelCard.from_json(card(golden=block).to_json(), where="x")
