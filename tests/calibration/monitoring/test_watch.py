from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from calibrant.artifacts.model_card import ModelCard
from calibrant.calibration.monitoring.watch import (
    Baseline,
    CalibrationAlarm,
    DriftAlarm,
    class_bias,
    ece,
    expected_accuracy,
    held_out_gap,
    rolling,
    wilson,
)
from calibrant.images.preprocessing import Preprocessing


def _stream(n: int, rng: np.random.Generator, *, sharper: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Log probabilities, and labels drawn from them (from flatter ones where the model is over-confident)."""
    logits = rng.normal(0, 2, (n, 5))
    true = np.exp(logits / sharper)
    true /= true.sum(axis=1, keepdims=True)
    labels = (rng.random((n, 1)) > true.cumsum(axis=1)).sum(axis=1)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return log_p, np.minimum(labels, 4)


def test_expected_accuracy_by_hand() -> None:
    """c = (0.5, 0.9): mean 0.7, variance (0.25 + 0.09) / 4."""
    got = expected_accuracy(np.array([0.5, 0.9]))
    half = 1.959964 * math.sqrt(0.34 / 4)
    assert got.value == pytest.approx(0.7)
    assert got.low == pytest.approx(0.7 - half)
    assert got.high == 1.0
    assert expected_accuracy(np.full(10_000, 0.8), gap=-0.05).value == pytest.approx(0.75)


def test_the_held_out_gap_of_a_card_by_hand() -> None:
    """under 0.01 - over 0.04 = -0.03; variance of an accuracy of 0.8 over 400 rows: 0.16 / 400."""
    after = {"accuracy": {"value": 0.8}, "under_ece": {"value": 0.01}, "over_ece": {"value": 0.04}}
    card = ModelCard(
        ("a", "b"), Preprocessing((8, 8), 8), metrics={"after": after, "before": {}},
        calibrator={"method": "temperature", "fitted_on": {"rows": 400}},
    )  # fmt: skip
    assert held_out_gap(card) == (pytest.approx(-0.03), pytest.approx(0.0004))
    assert held_out_gap(replace(card, metrics={})) == (0.0, 0.0)
    assert held_out_gap(None) == (0.0, 0.0)


def test_the_interval_of_the_label_free_accuracy_covers_the_truth() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(600):
        confidence = rng.uniform(0.4, 1.0, 300)
        correct = rng.random(300) < confidence
        got = expected_accuracy(confidence)
        inside += got.low <= correct.mean() <= got.high
    assert 0.93 <= inside / 600 <= 0.97


def test_ece_by_hand() -> None:
    """Bins (0.4, 0.6] and (0.8, 1]: |1 - 0.55| / 3 + |(0 - 0.95) + (1 - 0.9)| / 3; within a bin gaps cancel."""
    assert ece(np.array([0.55, 0.95, 0.9]), np.array([1.0, 0.0, 1.0]), bins=5) == pytest.approx(0.45 / 3 + 0.85 / 3)


def test_wilson_by_hand() -> None:
    got = wilson(8, 10)
    assert (got.low, got.high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))


def test_the_first_two_labels_have_figures_too() -> None:
    """Of few rows a bootstrap sample is often empty."""
    found = rolling(np.array([0.9, 0.6]), np.array([1.0, 0.0]), np.array([0.1, 0.9]), None)
    assert np.isfinite([found.ece.low, found.ece.high, found.nll.low, found.nll.high]).all()
    assert found.ece.low <= found.ece.value <= found.ece.high


def test_rolling_figures_lie_in_their_intervals() -> None:
    rng = np.random.default_rng(1)
    confidence = rng.uniform(0.5, 1, 800)
    correct = (rng.random(800) < confidence).astype(float)
    got = rolling(confidence, correct, -np.log(confidence), np.ones(800))
    assert got.accuracy.low < correct.mean() < got.accuracy.high
    assert got.ece.low <= got.ece.value <= got.ece.high
    assert got.coverage is not None
    assert got.coverage.value == 1.0


def test_class_bias_makes_predicted_and_observed_counts_agree() -> None:
    rng = np.random.default_rng(2)
    log_p, labels = _stream(4000, rng)
    wanted = np.array([1.0, -1.0, 0.5, 0.0, 0.0])
    shifted = log_p - wanted
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    bias = class_bias(shifted, labels, prior_rows=1.0, rounds=100)
    np.testing.assert_allclose(bias - bias.mean(), wanted - wanted.mean(), atol=0.15)


def test_the_baseline_finds_a_sharpness_and_a_bias() -> None:
    log_p, labels = _stream(6000, np.random.default_rng(3), sharper=1.5)
    assert Baseline.fit(log_p, labels).sharpness == pytest.approx(1 / 1.5, abs=0.05)


def test_the_alarm_is_silent_on_a_calibrated_stream_and_fires_on_an_over_confident_one() -> None:
    rng = np.random.default_rng(4)
    alarm = CalibrationAlarm()
    assert not any(alarm.add(*_stream(500, rng)) for _ in range(10))
    fired = None
    for n in range(0, 2000, 25):
        if alarm.add(*_stream(25, rng, sharper=2.0)):
            fired = n
            break
    assert fired is not None
    assert fired < 500
    assert alarm.on


def test_a_misfit_that_was_there_from_the_start_is_no_change() -> None:
    """A class bias that the baseline knows is normal; when it turns, that is an alarm."""
    rng = np.random.default_rng(5)
    shift = np.array([0.8, -0.8, 0.4, -0.4, 0.0])

    def biased(n: int, sign: float) -> tuple[np.ndarray, np.ndarray]:
        log_p, labels = _stream(n, rng)
        moved = log_p - sign * shift
        return moved - np.log(np.exp(moved).sum(axis=1, keepdims=True)), labels

    alarm = CalibrationAlarm(baseline=Baseline.fit(*biased(5000, 1.0)))
    assert not any(alarm.add(*biased(500, 1.0)) for _ in range(8))
    assert any(alarm.add(*biased(100, -1.0)) for _ in range(6))


def test_labels_may_come_one_at_a_time() -> None:
    log_p, labels = _stream(200, np.random.default_rng(6), sharper=2.0)
    one, all_ = CalibrationAlarm(), CalibrationAlarm()
    all_.add(log_p, labels)
    for n in range(200):
        one.add(log_p[n : n + 1], labels[n : n + 1])
    assert one.log_evidence == pytest.approx(all_.log_evidence)


def test_false_alarms_stay_below_alpha() -> None:
    """100 calibrated streams of 1,000 rows at alpha = 0.1: about 10 at most; far fewer in practice."""
    rng = np.random.default_rng(7)
    fired = sum(CalibrationAlarm(alpha=0.1, horizon=1000).add(*_stream(1000, rng)) for _ in range(100))
    assert fired <= 10


def test_drift_of_a_category_is_found_and_its_absence_is_not() -> None:
    rng = np.random.default_rng(8)
    before, after = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.25, 0.25, 0.25, 0.25])
    alarm = DriftAlarm(4)
    assert not any(alarm.add(rng.choice(4, 1000, p=before)) for _ in range(30))
    assert alarm.ready
    assert any(alarm.add(rng.choice(4, 100, p=after)) for _ in range(20))


def _misfit(n: int, rng: np.random.Generator, sign: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Served probabilities that favour some classes, as those of real models do."""
    log_p, labels = _stream(n, rng)
    moved = log_p - sign * np.array([0.5, -0.5, 0.25, -0.25, 0.0])
    return moved - np.log(np.exp(moved).sum(axis=1, keepdims=True)), labels


def test_slack_by_hand() -> None:
    """Two classes, 100 rows: (2 + 2.33 sqrt 4) / 200, half of it for a given baseline, two thirds for a learned one."""
    assert Baseline(1.0, np.zeros(2), rows=100).slack == pytest.approx(6.66 / 400)
    assert Baseline(1.0, np.zeros(2), rows=100, learned=True).slack == pytest.approx(6.66 / 300)
    assert Baseline(1.0, np.zeros(2)).slack == 0.0


def test_only_what_was_learned_on_the_way_counts_as_learned() -> None:
    rng = np.random.default_rng(4)
    alarm = CalibrationAlarm()
    alarm.add(*_misfit(1000, rng))
    assert alarm.baseline is not None
    assert alarm.baseline.learned
    assert not Baseline.fit(*_misfit(300, rng)).learned


def test_a_baseline_learned_on_the_way_raises_no_false_alarms() -> None:
    """Its error, of 1,000 labels, would add up over the next 5,000 if it were taken for the truth."""
    rng = np.random.default_rng(9)
    fired = sum(CalibrationAlarm().add(*_misfit(5000, rng)) for _ in range(12))
    assert fired == 0


def test_what_was_learned_on_the_way_still_finds_a_change_and_then_stays() -> None:
    rng = np.random.default_rng(10)
    alarm = CalibrationAlarm()
    assert not alarm.add(*_misfit(2500, rng))
    assert alarm.baseline is not None
    assert 1500 <= alarm.baseline.rows <= 2000  # those that are 500 rows old, but for a step
    delay = next(n for n in range(25, 1500, 25) if alarm.add(*_misfit(25, rng, -1.0)))
    assert delay < 500
    normal = alarm.baseline
    alarm.add(*_misfit(4000, rng, -1.0))
    assert alarm.baseline is normal


def test_a_baseline_settles_and_gives_its_rows_back() -> None:
    alarm = CalibrationAlarm()
    assert not alarm.add(*_misfit(7000, np.random.default_rng(11)))
    assert alarm.baseline is not None
    assert alarm.baseline.rows == 5000
    assert alarm._known == []
