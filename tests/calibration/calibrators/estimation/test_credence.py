"""How much maps are believed: by hand, and that every share of the prior finds a strength."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.calibrators.estimation.credence import FEWER, STRENGTHS, credences, hopeless, prior_of


def test_shares_by_hand() -> None:
    # 100 rows: h = 1/3; scores log .5, log .5 + 3/3 + 2/2
    found = credences(np.array([0.5, 0.5]), np.array([0.0, 3.0]), 100, np.array([0.0, 2.0]))
    assert found[1] / found[0] == pytest.approx(np.exp(2.0))
    # without evidence the gain takes its place: 3/3 + 3/2
    found = credences(np.array([0.5, 0.5]), np.array([0.0, 3.0]), 100)
    assert found[1] / found[0] == pytest.approx(np.exp(2.5))


@pytest.mark.parametrize("strengths", [STRENGTHS, FEWER, (2.0,)])
def test_the_prior_is_all_given_away(strengths: tuple[float, ...]) -> None:
    prior = prior_of(strengths)
    assert len(prior) == len(strengths) + 1
    assert prior.sum() == pytest.approx(1.0)
    assert prior[0] == pytest.approx(0.2)


def test_a_path_ends_ten_nats_behind_its_best() -> None:
    assert not hopeless([0.0])
    assert not hopeless([0.0, 30.0, 20.5])
    assert hopeless([0.0, 30.0, 19.5])
