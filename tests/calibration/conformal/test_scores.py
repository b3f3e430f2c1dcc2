"""Conformal scores by hand."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.conformal.scores import all_scores, sharpened
from calibrant.errors import ConfigError


def test_scores_of_each_kind() -> None:
    p = np.array([[0.2, 0.5, 0.3]])
    assert np.allclose(all_scores(p, "lac"), [[0.8, 0.5, 0.7]])
    assert np.allclose(all_scores(p, "aps"), [[0.8, 0.0, 0.5]])  # mass above
    assert np.allclose(all_scores(p, "aps", u=1.0), [[1.0, 0.5, 0.8]])
    assert np.allclose(all_scores(p, "raps", penalty=0.1, rank=1), [[0.8 + 0.2, 0.0, 0.5 + 0.1]])


def test_a_temperature_of_one_half_squares_and_renormalises() -> None:
    assert sharpened(np.array([[0.2, 0.8]]), 0.5) == pytest.approx(np.array([[0.04, 0.64]]) / 0.68)
    with pytest.raises(ConfigError, match="temperature"):
        sharpened(np.array([[0.2, 0.8]]), 0.0)
