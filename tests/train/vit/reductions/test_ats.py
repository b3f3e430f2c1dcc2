"""ATS: query rows sampled by significance; a repeat is a slot that nobody reads."""

from __future__ import annotations

from typing import Any

import torch

from calibrant.train.vit.reductions.ats import ATS
from calibrant.train.vit.reductions.stage import Stage
from calibrant.train.vit.tokens import Tokens


def test_ats_samples_by_hand() -> None:
    score = torch.tensor([[1.0, 0.0, 6.0, 1.0]])  # c = 0.125, 0.125, 0.875, 1; u = 1/8, 3/8, 5/8 for K = 3
    index, fresh = ATS.sample(score, torch.ones(1, 4, dtype=torch.bool), 3)
    assert index.tolist() == [[0, 0, 2]]
    assert fresh.tolist() == [[True, False, True]]
    without_first = torch.tensor([[False, True, True, True]])
    assert ATS.sample(score, without_first, 3)[0].tolist() == [[1, 1, 2]]


def test_repeats_stay_as_slots_that_are_not_valid(layer: Any) -> None:
    """Significance 1, 0, 6, 1 of the tokens after the class token, as above: slots 1, 1 (a repeat) and 3."""
    t = Tokens(torch.arange(5.0)[None, :, None], 1)
    out = ATS(Stage(0, (0.75,)))(layer([1.0, 1.0, 1e-30, 6.0, 1.0]), t, 4)
    assert out.x.flatten().tolist() == [0, 1, 1, 3]
    assert out.valid is not None
    assert out.valid[0].tolist() == [True, True, False, True]


def test_values_count_in_the_significance(layer: Any) -> None:
    """Equal attention, values of length 1, 1, 8: c = .1, .2, 1, and both query points 1/6 and 1/2 are nearest to .2."""
    values = torch.tensor([[1.0], [1.0], [1.0], [-8.0]])
    out = ATS(Stage(0, (0.67,)))(layer([1.0] * 4, values=values), Tokens(torch.arange(4.0)[None, :, None], 1), 3)
    assert out.x.flatten().tolist() == [0, 2, 2]
    assert ATS(Stage(0, (0.67,))).leaves(3, 3, 0) == 2
