"""How unusual an answer and a picture are, in words for people."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from calibrant.artifacts.predictions import read_predictions
from calibrant.dashboard.numbers import unusual
from calibrant.dashboard.numbers.unusual import Unusual


def test_an_answer_is_placed_among_those_of_the_held_out_rows(run) -> None:  # type: ignore[no-untyped-def]
    logits = read_predictions(run[1].path.path).logits.astype(np.float64)
    energies = -np.log(np.exp(logits).sum(axis=1))
    image = Image.effect_noise((64, 64), 60).convert("RGB")
    for score in (float(np.sort(energies)[1000]), float(energies.max()) + 1):
        found = unusual.judge(image, score, run[1], ())
        assert found.answer == pytest.approx((energies < score).mean(), abs=2e-3)
        assert found.look is None
    assert unusual.judge(image, None, None, ()) == Unusual(None, None, False, 0)


def test_a_blank_sheet_is_warned_of_even_where_nothing_is_known() -> None:
    found = unusual.judge(Image.new("RGB", (64, 64), "white"), None, None, ())
    assert found.warned
    assert "one flat colour" in found.sentence()


def test_the_sentence_says_among_how_many() -> None:
    assert "more unusual than all of 200 images" in Unusual(0.2, 1.0, False, 200).sentence()
    usual = Unusual(0.4, 0.6, False, 200)
    assert not usual.warned
    assert usual.sentence() == "Its answer is more unusual than 40.0 % of the held-out images."
    assert Unusual(0.995, 0.2, False, 200).warned
