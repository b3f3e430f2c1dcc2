from __future__ import annotations

import json

import numpy as np
import pytest

from calibrant.calibration.monitoring.baseline import Baseline, class_bias

from .streams import stream


def test_class_bias_makes_predicted_and_observed_counts_agree() -> None:
    rng = np.random.default_rng(2)
    log_p, labels = stream(4000, rng)
    wanted = np.array([1.0, -1.0, 0.5, 0.0, 0.0])
    shifted = log_p - wanted
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    bias = class_bias(shifted, labels, prior_rows=1.0, rounds=100)
    np.testing.assert_allclose(bias - bias.mean(), wanted - wanted.mean(), atol=0.15)


def test_the_baseline_finds_a_sharpness_and_a_bias() -> None:
    log_p, labels = stream(6000, np.random.default_rng(3), sharper=1.5)
    assert Baseline.fit(log_p, labels).sharpness == pytest.approx(1 / 1.5, abs=0.05)


def test_slack_by_hand() -> None:
    """Two classes, 100 rows: (2 + 2.33 sqrt 4) / 200, half of it for a given baseline, two thirds for a learned one."""
    assert Baseline(1.0, np.zeros(2), rows=100).slack == pytest.approx(6.66 / 400)
    assert Baseline(1.0, np.zeros(2), rows=100, learned=True).slack == pytest.approx(6.66 / 300)
    assert Baseline(1.0, np.zeros(2)).slack == 0.0


def test_a_baseline_comes_back_from_its_record() -> None:
    given = Baseline(0.9, np.array([0.1, -0.3, 0.2]), rows=700)
    got = Baseline.from_dict(json.loads(json.dumps(given.to_dict())))
    assert (got.sharpness, got.bias.tolist(), got.rows, got.learned) == (0.9, [0.1, -0.3, 0.2], 700, False)
