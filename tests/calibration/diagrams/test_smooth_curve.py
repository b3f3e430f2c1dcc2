"""The smooth reliability curve: against the kernel regression of single rows, by hand, and as the area SmoothECE is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calibrant.calibration.diagrams.smooth_curve import class_smooth_reliability, smooth_reliability
from calibrant.calibration.metrics import smooth_ece
from calibrant.calibration.statistics.accumulate import Accumulator, statistics_of_probabilities
from calibrant.calibration.statistics.statistics import Statistics

F = NDArray[np.float64]


def rows(n: int, classes: int = 4, *, seed: int = 0, sharpness: float = 1.7) -> tuple[F, NDArray[np.int64]]:
    """Over-confident where it is sure; confidences over the whole of 1/C to 1."""
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(n, classes)) * rng.choice([0.3, 1.5, 3.0], size=(n, 1))
    labels = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
    z = sharpness * true
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True), labels.astype(np.int64)


def direct(probs: F, labels: Any, bandwidth: float, weights: F | None = None) -> dict[str, F]:
    """The definition, row by row, with mirror images at 0 and 1 out to four periods."""
    c = probs.max(axis=1)
    right = (probs.argmax(axis=1) == labels).astype(float)
    w = np.ones(len(c)) if weights is None else weights
    t = np.linspace(0, 1, 201)
    kernel = sum(
        np.exp(-0.5 * ((t - (sign * c[:, None] + 2 * n)) / bandwidth) ** 2) for n in range(-4, 5) for sign in (1, -1)
    ) / (bandwidth * np.sqrt(2 * np.pi))  # fmt: skip
    density = w @ kernel / w.sum()
    residual = (w * (right - c)) @ kernel / w.sum()
    variance = (w**2 * c * (1 - c)) @ kernel**2 / (w @ kernel) ** 2
    return {
        "accuracy": np.clip(t + residual / density, 0, 1), "density": density, "half": 1.96 * np.sqrt(variance),
        "rows": w.sum() * density * bandwidth * np.sqrt(2 * np.pi),
    }  # fmt: skip


def without_rows(probs: F, labels: Any) -> Statistics:
    accumulator = Accumulator(probs.shape[1], rows_expected=10**9)
    accumulator.add_probabilities(probs, labels)
    return accumulator.finish()


def test_curve_is_the_kernel_regression_of_the_residuals() -> None:
    probs, labels = rows(3000)
    curve = smooth_reliability(statistics_of_probabilities(probs, labels))
    expected = direct(probs, labels, curve.bandwidth)
    there = curve.supported
    assert there.sum() > 140
    np.testing.assert_allclose(curve.accuracy[there], expected["accuracy"][there], atol=1e-9)
    np.testing.assert_allclose(curve.density, expected["density"], atol=1e-9)


def test_band_and_rows_are_those_of_single_rows() -> None:
    """Cells take rows together that are up to 1/100 apart, so not to the last digit."""
    probs, labels = rows(3000)
    curve = smooth_reliability(statistics_of_probabilities(probs, labels))
    expected = direct(probs, labels, curve.bandwidth)
    there = curve.supported
    np.testing.assert_allclose(curve.rows[there], expected["rows"][there], rtol=1e-9)
    half = (curve.band_high - curve.confidence)[there & (curve.band_high < 1)]
    np.testing.assert_allclose(half, expected["half"][there & (curve.band_high < 1)], rtol=5e-3)


def test_from_cells_alone_it_is_the_same_to_the_width_of_a_line() -> None:
    probs, labels = rows(20_000)
    curve = smooth_reliability(without_rows(probs, labels))
    expected = direct(probs, labels, curve.bandwidth)
    there = curve.supported
    np.testing.assert_allclose(curve.accuracy[there], expected["accuracy"][there], atol=2e-4)
    assert curve.value == pytest.approx(smooth_ece(probs, labels), abs=1e-5)


@pytest.mark.parametrize("keep", [True, False])
def test_area_to_the_diagonal_is_smooth_ece(keep: bool) -> None:
    """The curve's points are ten times as far apart as those of SmoothECE's own integral."""
    probs, labels = rows(4000, seed=3)
    curve = smooth_reliability((statistics_of_probabilities if keep else without_rows)(probs, labels))
    area = np.abs(curve.density * (np.nan_to_num(curve.accuracy) - curve.confidence))
    area[np.isnan(curve.accuracy)] = 0
    assert float((area.sum() - 0.5 * (area[0] + area[-1])) / 200) == pytest.approx(curve.value, abs=2e-4)
    assert curve.value == pytest.approx(smooth_ece(probs, labels), abs=1e-4)
    assert curve.over + curve.under == pytest.approx(curve.value, abs=1e-12)


def test_rows_of_one_confidence_lie_on_one_parallel_to_the_diagonal() -> None:
    """Five rows at 0.8 of which one is right: 0.6 too much, wherever it is looked at."""
    probs = np.full((5, 2), 0.2)
    probs[:, 0] = 0.8
    curve = smooth_reliability(statistics_of_probabilities(probs, [0, 1, 1, 1, 1]))
    assert curve.over == pytest.approx(0.6, abs=1e-6)
    assert curve.under == pytest.approx(0.0, abs=1e-9)
    near = (curve.confidence > 0.65) & (curve.confidence < 0.95)
    np.testing.assert_allclose(curve.accuracy[near], curve.confidence[near] - 0.6, atol=1e-9)


def test_where_claims_hold_exactly_the_curve_is_the_diagonal_however_uneven_the_rows() -> None:
    """Twenty rows at 0.9 of which eighteen are right, a thousand at 0.6 of which six hundred are."""
    c = np.repeat([0.9, 0.6], [20, 1000])
    probs = np.stack([c, 1 - c], axis=1)
    labels = np.r_[[0] * 18, 1, 1, [0] * 600, [1] * 400]
    curve = smooth_reliability(statistics_of_probabilities(probs, labels))
    assert curve.value < 1e-3
    there = curve.supported
    np.testing.assert_allclose(curve.accuracy[there], curve.confidence[there], atol=1e-9)
    assert there[180]  # 0.9


def test_weight_of_a_class_is_as_many_copies_of_its_rows() -> None:
    probs, labels = rows(2000, classes=3, seed=5)
    statistics = statistics_of_probabilities(probs, labels)
    weighted = smooth_reliability(statistics.weighted(np.array([3.0, 1.0, 1.0])))
    copies = np.r_[np.arange(2000), np.flatnonzero(labels == 0), np.flatnonzero(labels == 0)]
    copied = smooth_reliability(statistics_of_probabilities(probs[copies], labels[copies]))
    assert weighted.bandwidth == pytest.approx(copied.bandwidth, rel=1e-9)
    both = weighted.supported
    np.testing.assert_allclose(weighted.accuracy[both], copied.accuracy[both], atol=1e-9)
    # Copies are not new evidence: the band of the weighted rows is wider, and their number smaller.
    assert (weighted.rows[both] < copied.rows[both]).all()
    assert (weighted.band_high[both] >= copied.band_high[both]).all()


def test_band_holds_a_perfect_model_nearly_everywhere() -> None:
    outside, seen = 0, 0
    for seed in range(30):
        probs, labels = rows(3000, seed=seed, sharpness=1.0)
        curve = smooth_reliability(statistics_of_probabilities(probs, labels))
        there = curve.supported
        seen += int(there.sum())
        outside += int(((curve.accuracy > curve.band_high) | (curve.accuracy < curve.band_low))[there].sum())
    assert 0.02 < outside / seen < 0.09


def test_a_class_is_curved_by_the_rows_predicted_as_it() -> None:
    probs, labels = rows(20_000, seed=8)
    statistics = statistics_of_probabilities(probs, labels)
    curve = class_smooth_reliability(statistics, [1, 2])
    mine = np.isin(probs.argmax(axis=1), [1, 2])
    expected = direct(probs[mine], labels[mine], curve.bandwidth)
    there = curve.supported
    assert there.sum() > 100
    np.testing.assert_allclose(curve.accuracy[there], expected["accuracy"][there], atol=2e-3)
    everything = smooth_reliability(statistics)
    assert np.abs(curve.accuracy - everything.accuracy)[there].max() > 5e-3
