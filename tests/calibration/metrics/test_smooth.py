"""Smooth ECE where its value is known."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import metrics


def test_smooth_ece_counts_confidence_one_in_full() -> None:
    # Half the rows: confidence 1, right. Half: confidence .6, right on 40 %. True error .5 * 0 + .5 * .2 = .1, smeared
    # little: the popular implementation says .1327.
    probs = np.array([[1.0, 0.0]] * 5000 + [[0.6, 0.4]] * 5000)
    labels = np.array([0] * 5000 + [0] * 2000 + [1] * 3000)
    assert metrics.smooth_ece(probs, labels) == pytest.approx(0.1, abs=2e-3)
