from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import Calibrator, fit, metrics
from calibrant.calibration.adjustment import adjusted_probabilities
from calibrant.settings.heads import PostHocConfig
from calibrant.train.heads.posthoc import (
    PostHoc,
    choose_strength,
    class_slopes,
    fit_posthoc,
    likeliest,
    wanted_shifts,
)

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def sample(
    n: int, log_shift: Floats, seed: int = 0, scale: float = 1.0
) -> tuple[Floats, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Logits and labels such that softmax(z / scale - log_shift) is the truth."""
    rng = np.random.default_rng(seed)
    u = 1.5 * rng.normal(size=(n, len(log_shift)))
    p = np.exp(u) / np.exp(u).sum(1, keepdims=True)
    y = np.asarray([rng.choice(len(log_shift), p=row) for row in p], np.int64)
    return scale * (u + log_shift), y


COUNTS = np.asarray([60, 30, 10, 4], np.int64)
RATIO = np.log(COUNTS / COUNTS.sum()) - np.log(1 / 4)


def test_temperature_is_fitted_inside_the_whole_formula() -> None:
    """p = softmax(z / 2 - r) is the truth: tau = 2 on raw logits, T = 2, a = 1."""
    z, y = sample(40000, RATIO, scale=2.0)
    found = fit_posthoc(PostHocConfig(adjust=2.0, temperature="global"), z, y, COUNTS)
    assert 1 / found.weights[0] == pytest.approx(2.0, rel=0.03)
    assert found.strength == pytest.approx(1.0, rel=0.03)
    assert found.tau == 2.0


def test_adjusting_helps_the_tail_and_never_the_head() -> None:
    """The sign: subtracting log pi moves probability from frequent to rare classes."""
    z, y = sample(500, np.zeros(4))
    plain, moved = (fit_posthoc(PostHocConfig(adjust=a), z, y, COUNTS).probabilities(z) for a in (0.0, 1.0))
    assert (moved[:, 3] > plain[:, 3]).all()
    assert (moved[:, 0] < plain[:, 0]).all()


def test_the_chosen_strength_is_the_one_that_the_logits_need() -> None:
    z, y = sample(6000, RATIO * 1.5)
    assert choose_strength(z, y, RATIO) == pytest.approx(1.5, abs=0.3)
    z, y = sample(6000, np.zeros(4))
    assert choose_strength(z, y, RATIO) == pytest.approx(0.0, abs=0.2)


def test_probabilities_are_the_one_formula_of_the_calibration_package() -> None:
    z, y = sample(300, RATIO)
    found = fit_posthoc(PostHocConfig(adjust=1.2, temperature="global"), z, y, COUNTS)
    again = adjusted_probabilities(
        z, calibrator=Calibrator.from_json(found.calibrator().to_json()), log_prior_ratio=RATIO, strength=found.strength
    )
    np.testing.assert_allclose(found.probabilities(z), again, atol=1e-12)


def test_class_slopes_and_shifts_travel_as_a_vector_calibrator() -> None:
    z, y = sample(300, RATIO)
    found = fit_posthoc(PostHocConfig(adjust=1.0, temperature="per-class", recall=0.3), z, y, COUNTS)
    again = adjusted_probabilities(
        z, calibrator=Calibrator.from_json(found.calibrator().to_json()), log_prior_ratio=RATIO, strength=found.strength
    )
    np.testing.assert_allclose(found.probabilities(z), again, atol=1e-12)
    assert np.ptp(found.weights) > 0


def test_off_is_the_identity() -> None:
    z, y = sample(100, RATIO)
    found = fit_posthoc(PostHocConfig(), z, y, COUNTS)
    assert np.array_equal(found.logits(z), z)


def test_class_slopes_find_the_class_that_is_too_sharp() -> None:
    z, y = sample(30000, np.zeros(4))
    z[:, 2] *= 3.0
    b = class_slopes(z, y, np.ones(len(y)), offset=np.zeros(4), common=1.0)
    assert b[2] == pytest.approx(1 / 3, rel=0.1)
    assert b[[0, 1, 3]] == pytest.approx([1, 1, 1], rel=0.1)


def test_a_wanted_recall_is_met_with_the_smallest_shift() -> None:
    scores = np.asarray([[2.0, 0.0], [1.0, 0.0], [3.0, 0.0], [0.5, 0.0], [2.0, 0.0]])
    labels = np.asarray([0, 1, 1, 1, 0])
    # Class 1 trails by 1, 3 and .5: two of three need a shift just above 1.
    c, unmet = wanted_shifts(scores, labels, recall=0.6)
    assert c[1] == pytest.approx(1.0, abs=1e-5)
    assert c[0] == 0
    assert unmet == ()


def test_a_recall_that_no_shift_reaches_is_named() -> None:
    scores = np.asarray([[1.0, 0.0], [1.0, 0.0]])
    shifts, unmet = wanted_shifts(scores, np.asarray([0, 1]), recall=1.0)
    assert unmet == (1,)
    assert not shifts.any()  # a race between two classes that helps neither is not kept


def test_a_wanted_precision_is_met_by_giving_up_doubtful_rows() -> None:
    scores = np.asarray([[5.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.0, 4.0]])
    labels = np.asarray([0, 0, 1, 1])
    c, unmet = wanted_shifts(scores, labels, precision=0.9)
    predicted = (scores + c).argmax(1)
    assert predicted.tolist() == [0, 0, 1, 1]
    assert c[0] == pytest.approx(-1.0, abs=1e-5)
    assert unmet == ()


def test_shift_of_the_formula_by_hand() -> None:
    """p = softmax(w z + c - a r): w .5, c (0, 1), a 2, r (log 2, log 1/2), z (4, 2)."""
    p = PostHoc(np.asarray([0.5, 0.5]), np.asarray([0.0, 1.0]), 2.0, 4.0, np.log([2.0, 0.5]))
    expected = [2 - 2 * np.log(2), 1 + 1 + 2 * np.log(2)]
    assert p.logits(np.asarray([[4.0, 2.0]]))[0].tolist() == pytest.approx(expected)


def test_likelihood_finds_strength_and_temperature_together() -> None:
    """p = softmax(z / 2 - 1.5 r) is the truth, whatever the scale of the logits."""
    z, y = sample(40000, 1.5 * RATIO, scale=2.0)
    found = fit_posthoc(PostHocConfig(adjust="likelihood", temperature="global"), z, y, COUNTS)
    assert 1 / found.weights[0] == pytest.approx(2.0, rel=0.03)
    assert found.strength == pytest.approx(1.5, rel=0.05)
    assert found.tau == pytest.approx(3.0, rel=0.05)
    for factor in (1e-3, 1e3):
        moved = fit_posthoc(PostHocConfig(adjust="likelihood", temperature="global"), factor * z, y, COUNTS)
        np.testing.assert_allclose(moved.probabilities(factor * z), found.probabilities(z), atol=1e-6)
    fixed = fit_posthoc(PostHocConfig(adjust="likelihood"), z / 2, y, COUNTS)
    assert fixed.weights.tolist() == [1.0] * 4
    assert fixed.tau == pytest.approx(1.5, rel=0.05)


def test_likelihood_is_the_minimum_that_a_grid_sees() -> None:
    z, y = sample(400, RATIO, scale=3.0)
    w = np.random.default_rng(1).uniform(0.5, 2, len(y))

    def nll(b: float, a: float) -> float:
        u = b * z - a * RATIO
        log_p = u - np.log(np.exp(u).sum(1, keepdims=True))
        return float(-(w * log_p[np.arange(len(y)), y]).sum() / w.sum())

    b, a = likeliest(z, y, RATIO, w)
    assert all(nll(b, a) <= nll(b * (1 + i), a + j) for i in (-0.01, 0, 0.01) for j in (-0.01, 0, 0.01))


def test_equal_counts_leave_no_strength_to_fit() -> None:
    z, y = sample(500, np.zeros(4), scale=2.0)
    found = fit_posthoc(PostHocConfig(adjust="likelihood", temperature="global"), z, y, np.asarray([9, 9, 9, 9]))
    assert found.tau == 0.0
    assert 1 / found.weights[0] == pytest.approx(2.0, rel=0.2)


@pytest.mark.parametrize("adjust", ["auto", "likelihood", 1.0])
def test_heads_that_claim_nothing_are_adjusted_on_the_scale_of_their_temperature(adjust: float | str) -> None:
    """Logits 20 times too large, as of a discriminant in many dimensions: the strength is that of calibrated ones."""
    z, y = sample(6000, RATIO)
    config = PostHocConfig(adjust=adjust, temperature="global")  # type: ignore[arg-type]
    raw = fit_posthoc(config, 20 * z, y, COUNTS, claims=False)
    assert raw.tau == pytest.approx(1.0, abs=0.3)
    assert raw.strength == pytest.approx(raw.tau, rel=0.1)
    np.testing.assert_allclose(raw.probabilities(20 * z), fit_posthoc(config, z, y, COUNTS).probabilities(z), atol=0.08)


def test_class_slopes_are_fitted_inside_the_whole_formula() -> None:
    """p = softmax(z - r) is the truth: every slope is 1 beside a strength of 1."""
    z, y = sample(40000, RATIO)
    found = fit_posthoc(PostHocConfig(adjust=1.0, temperature="per-class"), z, y, COUNTS)
    assert found.strength == pytest.approx(1.0, rel=0.03)
    assert found.weights == pytest.approx([1, 1, 1, 1], rel=0.05)


def macro(z: Floats, y: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
    said = z.argmax(axis=1)
    each = [(2 * int(((said == k) & (y == k)).sum()), int((said == k).sum()) + int((y == k).sum())) for k in set(y)]
    return sum(hit / both for hit, both in each) / len(each)


def test_the_chosen_strength_never_lowers_the_score_that_it_is_chosen_by() -> None:
    for seed in range(120):
        z, y = sample(40, np.zeros(4), seed)
        z = z + 0.1 * RATIO
        assert macro(z - choose_strength(z, y, RATIO) * RATIO, y) >= macro(z, y) - 1e-12


def test_a_head_on_skewed_rows_is_as_calibrated_as_a_plain_temperature() -> None:
    """Rows with the class shares of training: nothing is weighted to others behind the user's back."""
    rng = np.random.default_rng(0)
    y = rng.choice(4, 24000, p=COUNTS / COUNTS.sum())
    z = 2.5 * (1.2 * np.eye(4)[y] + rng.normal(size=(len(y), 4))) + np.log(COUNTS / COUNTS.sum())
    val, test = slice(0, 4000), slice(4000, None)
    head = fit_posthoc(PostHocConfig(temperature="global"), z[val], y[val], COUNTS).probabilities(z[test])
    plain = fit("temperature", z[val], y[val]).probabilities(z[test])
    assert metrics.ece(head, y[test]) == pytest.approx(metrics.ece(plain, y[test]), abs=0.003)
