"""The abstain threshold keeps the promised error rate although it was searched for."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from calibrant.calibration import fit
from calibrant.calibration.conformal.abstain import (
    abstain_for_coverage,
    abstain_for_risk,
    abstain_for_risk_of_answers,
    fewest,
)
from calibrant.errors import ConfigError


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "calibration"
CAL, TEST = (arrays(GOLDEN / f"resnet20_{part}.npz") for part in ("cal", "test"))


def two_classes(confidence: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.stack([confidence, 1 - confidence], axis=1), wrong.astype(int)


def given(confidence: np.ndarray, wrong: np.ndarray, risk: float = 0.05) -> float:
    """Share answered, 0 where no threshold is given."""
    try:
        return abstain_for_risk(*two_classes(confidence, wrong), risk=risk).coverage
    except ConfigError:
        return 0.0


def test_the_first_test_needs_107_answers_without_an_error() -> None:
    # .95^107 = .00413 <= .05 / 12 = .004167 < .95^106
    assert fewest(0.05) == 107
    sure = np.linspace(0.99, 0.6, 108)
    found = abstain_for_risk(*two_classes(sure, np.zeros(108)), risk=0.05)
    assert sure[107] < found.threshold < sure[106]
    assert (found.risk, found.risk_high, found.coverage) == (0.0, 0.05, pytest.approx(107 / 108))
    with pytest.raises(ConfigError, match="107 rows cannot show.*108 are needed, and 107 of them"):
        abstain_for_risk(*two_classes(sure[:107], np.zeros(107)), risk=0.05)


def test_one_error_among_the_first_rows_is_too_many_and_more_rows_make_up_for_it() -> None:
    sure, wrong = np.linspace(0.99, 0.6, 400), np.zeros(400)
    wrong[50] = 1
    assert given(sure[:109], wrong[:109]) == 0.0
    assert given(sure, wrong) == pytest.approx(399 / 400)


def test_rows_as_sure_as_the_threshold_are_not_answered() -> None:
    confidence = np.repeat([0.9, 0.7], [200, 100])
    wrong = np.repeat([0, 1], [200, 100])
    found = abstain_for_risk(*two_classes(confidence, wrong), risk=0.05)
    assert 0.7 < found.threshold < 0.7001
    assert found.coverage == pytest.approx(2 / 3)
    assert (np.float32(0.7) >= found.threshold, np.float32(0.9) >= found.threshold) == (False, True)


def test_the_certainty_is_divided_among_several_wishes() -> None:
    sure = np.linspace(0.99, 0.6, 150)
    alone = abstain_for_risk(*two_classes(sure, np.zeros(150)), risk=0.05)
    assert alone.coverage == pytest.approx(149 / 150)
    assert fewest(0.05, among=8) > 147 > fewest(0.05, among=7)  # log(.05 / 12 / 8) / log(.95) = 147.4
    with pytest.raises(ConfigError, match="149 are needed|are needed"):
        abstain_for_risk(*two_classes(sure[:148], np.zeros(148)), risk=0.05, among=8)


def test_each_of_two_wishes_is_tested_at_half_the_level() -> None:
    """One error among 160 answers: .95^160 + 160 * .05 * .95^159 = .00257, between .05 / 24 and .05 / 12."""
    sure, wrong = np.linspace(0.99, 0.6, 161), np.zeros(161)
    wrong[0] = 1
    assert given(sure, wrong) == pytest.approx(160 / 161)
    with pytest.raises(ConfigError, match="no threshold is shown"):
        abstain_for_risk(*two_classes(sure, wrong), risk=0.05, among=2)


def test_equal_weights_are_no_weights() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, 1000)
    probs, labels = two_classes(confidence, rng.random(1000) < 0.2 * (1 - confidence))
    plain = abstain_for_risk(probs, labels, risk=0.1)
    weighted = abstain_for_risk(probs, labels, risk=0.1, target_prior=np.bincount(labels))
    assert (plain.threshold, plain.coverage) == (weighted.threshold, pytest.approx(weighted.coverage))
    assert weighted.effective_rows == pytest.approx(round(weighted.coverage * 1000))


def test_a_class_of_the_target_without_rows_is_refused() -> None:
    sure = np.linspace(0.99, 0.6, 200)
    with pytest.raises(ConfigError, match="class 1 has no share in the data"):
        abstain_for_risk(*two_classes(sure, np.zeros(200)), risk=0.05, target_prior=[0.5, 0.5])


def test_few_effective_rows_are_said(caplog: pytest.LogCaptureFixture) -> None:
    labels = np.repeat([0, 1], [490, 10])
    probs = np.full((500, 2), 0.02)
    probs[np.arange(500), labels] = 0.98
    probs[:, 0] += np.linspace(1e-3, 0, 500)
    probs /= probs.sum(axis=1, keepdims=True)
    with caplog.at_level(logging.WARNING):
        abstain_for_risk(probs, labels, risk=0.3, target_prior=[0.5, 0.5])
    assert "effective rows of the target prior" in caplog.text


@pytest.mark.parametrize("risk", [0.0, 1.0, -0.1])
def test_impossible_wishes_are_refused(risk: float) -> None:
    with pytest.raises(ConfigError, match="risk"):
        abstain_for_risk(np.full((9, 2), 0.5), [0] * 9, risk=risk)


def test_abstaining_by_coverage_by_hand() -> None:
    probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    found = abstain_for_coverage(probs, [0, 1, 0, 0], coverage=0.5)
    assert (found.threshold, found.coverage, found.risk) == (0.8, 0.5, 0.5)
    assert found.risk_high == pytest.approx(1 - (1 - 0.95**0.5), abs=1e-9)  # P(X <= 1; 2, q) = 1 - q^2 = .05


def test_the_upper_limit_of_no_error_in_fifty_answers() -> None:
    """Clopper and Pearson, one-sided: with no error in n rows the limit solves (1 - r)^n = 5 %."""
    probs = np.tile([0.9, 0.1], (50, 1))
    found = abstain_for_coverage(probs, np.zeros(50, int), coverage=1.0)
    assert (found.coverage, found.risk) == (1.0, 0.0)
    assert found.risk_high == pytest.approx(1 - 0.05 ** (1 / 50))


def test_the_threshold_holds_on_rows_it_has_not_seen() -> None:
    calibrator = fit("temperature", CAL["logits"], CAL["labels"])
    found = abstain_for_risk(calibrator.probabilities(CAL["logits"]), CAL["labels"], risk=0.05)
    assert found.risk < found.risk_high == 0.05
    probs = calibrator.probabilities(TEST["logits"])
    answered = probs.max(axis=1) >= found.threshold
    wrong = probs.argmax(axis=1)[answered] != TEST["labels"][answered]
    assert 0.02 < wrong.mean() < 0.05
    assert answered.mean() == pytest.approx(found.coverage, abs=0.03)


@pytest.mark.slow
def test_at_an_error_rate_just_above_the_wish_a_threshold_is_rarely_given() -> None:
    """Flat error rate .0505 and a wish of .05: 400 simulations, at most 5 % + 3 standard errors, 32."""
    rng = np.random.default_rng(0)
    broken = sum(given(rng.uniform(0.5, 1, 1000), rng.random(1000) < 0.0505) > 0 for _ in range(400))
    assert broken <= 32


@pytest.mark.slow
def test_much_is_answered_where_confidence_tells_right_from_wrong() -> None:
    """Error rates that fall with the confidence, and a flat one of 2 %: mean share answered over n and curves."""
    curves = (lambda c: 0.02 + 0 * c, lambda c: 0.3 * (1 - c), lambda c: 0.8 * (1 - c) ** 2, lambda c: 0.6 * (1 - c))
    rng = np.random.default_rng(1)
    shares = []
    for n in (300, 1000, 5000):
        for curve in curves:
            for _ in range(15):
                c = rng.uniform(0.5, 1, n)
                shares.append(given(c, rng.random(n) < curve(c)))
    assert np.mean(shares) >= 0.35


@pytest.mark.slow
@pytest.mark.parametrize("thinned", [False, True])
def test_under_a_target_prior_the_promise_is_kept_where_ignoring_it_is_not(thinned: bool) -> None:
    """Ten classes, tail 50: wrong in 8 % of the head's rows and 25 % of the tail's; a wish of 15 % under uniform."""
    rng = np.random.default_rng(2)
    prior = 50.0 ** -(np.arange(10) / 9)
    prior /= prior.sum()
    rate = np.linspace(0.05, 0.26, 10)  # 15.5 % under uniform at every confidence
    broken = ignored = 0
    for _ in range(150):
        y = rng.choice(10, 1000, p=prior)
        c = rng.uniform(0.5, 0.99, 1000)
        named = np.where(rng.random(1000) < rate[y], (y + 1) % 10, y)
        probs = np.repeat(((1 - c) / 9)[:, None], 10, axis=1)
        probs[np.arange(1000), named] = c
        for target in (np.full(10, 0.1), None):
            try:
                abstain_for_risk(probs, y, risk=0.15, target_prior=target, thinned=thinned and target is not None)
            except ConfigError:
                continue
            broken, ignored = broken + (target is not None), ignored + (target is None)
    assert broken <= 15
    assert ignored >= 140


def test_of_answers_alone_the_threshold_is_the_same() -> None:
    rng = np.random.default_rng(5)
    confidence = rng.uniform(0.5, 1, 3000)
    wrong = rng.random(3000) > confidence
    expected = abstain_for_risk(*two_classes(confidence, wrong), risk=0.1)
    assert abstain_for_risk_of_answers(confidence, wrong, risk=0.1) == expected
