from __future__ import annotations

import json

import numpy as np
import pytest

from calibrant.artifacts.model_card import Prior
from calibrant.calibration.monitoring.baseline import MOST_BYTES, Baseline, KnownRows, class_bias

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
    assert Baseline.fit([KnownRows.of(log_p, labels)]).sharpness == pytest.approx(1 / 1.5, abs=0.05)


def test_slack_by_hand() -> None:
    """Five classes, 100 rows: df = 8, so (8 + 2.33 sqrt 16) / 200."""
    assert Baseline(1.0, np.zeros(5), rows=100).slack == pytest.approx(17.32 / 200)
    assert Baseline(1.0, np.zeros(2)).slack == 0.0


def test_a_baseline_comes_back_from_its_record() -> None:
    given = Baseline(0.9, np.array([0.1, -0.3, 0.2]), rows=700)
    got = Baseline.from_dict(json.loads(json.dumps(given.to_dict())))
    assert (got.sharpness, got.bias.tolist(), got.rows) == (0.9, [0.1, -0.3, 0.2], 700)


def test_known_rows_come_back_from_their_record_bit_by_bit() -> None:
    log_p, labels = stream(20, np.random.default_rng(0))
    given = KnownRows.of(log_p, labels, np.array([0.5, 0.0, 0.0, 0.0, -0.5]))
    got = KnownRows.from_dict(json.loads(json.dumps(given.to_dict())))
    np.testing.assert_array_equal(got.log_p, log_p.astype(np.float32))
    np.testing.assert_array_equal(got.labels, labels)
    np.testing.assert_array_equal(got.offset, given.offset)


def test_rows_that_are_off_by_a_known_offset_and_rows_that_are_not_have_one_baseline() -> None:
    """Labels of the first half follow softmax(log p + offset), of the second softmax(log p): no misfit in either."""
    rng, offset = np.random.default_rng(5), np.array([1.0, -1.0, 0.0, 0.5, -0.5])
    log_p, _ = stream(8000, rng)
    moved = (log_p[:4000] + offset + rng.gumbel(size=(4000, 5))).argmax(axis=1)
    plain = (log_p[4000:] + rng.gumbel(size=(4000, 5))).argmax(axis=1)
    found = Baseline.fit([KnownRows.of(log_p[:4000], moved, offset), KnownRows.of(log_p[4000:], plain)])
    assert found.sharpness == pytest.approx(1.0, abs=0.05)
    assert np.ptp(found.bias) < 0.2


def test_held_out_rows_spread_as_in_training_are_off_by_the_correction() -> None:
    """A file that subtracts log(train / uniform), and labels that are spread as in training or evenly."""
    train, calibrated = (0.7, 0.2, 0.1), np.log(np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]]))
    term = np.log(np.array(train) * 3)
    rare = KnownRows.held_out(calibrated, np.array([1, 2]), term=term, prior=Prior(train=train, applied=1.0))
    often = KnownRows.held_out(calibrated, np.array([0, 0]), term=term, prior=Prior(train=train, applied=1.0))
    served = np.exp(calibrated - term) / np.exp(calibrated - term).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(rare.log_p), served, rtol=1e-6)
    np.testing.assert_allclose(np.exp(often.log_p), served, rtol=1e-6)
    assert (rare.offset.tolist(), often.offset.tolist()) == ([0.0] * 3, term.tolist())


def test_rows_are_thinned_evenly_to_what_a_log_should_hold() -> None:
    classes = 40_000  # 160 kB a row
    rows = KnownRows.of(np.zeros((50, classes), np.float32), np.arange(50))
    kept = rows.thinned()
    assert len(kept) == MOST_BYTES // (4 * classes) == 26
    assert (kept.labels[0], kept.labels[-1]) == (0, 49)
    assert set(np.diff(kept.labels)) <= {1, 2}
    assert len(KnownRows.of(np.zeros((50, 4)), np.zeros(50, np.int64)).thinned()) == 50
