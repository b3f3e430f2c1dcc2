"""Plausible accuracies: shares, pulled to the common curve where rows are few and to the counts where they are many."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibrant.calibration.intervals.beta_binomial import accuracies, fit_curve, log_gamma


def drawn(claim: list[float], hits: list[float], rows: list[float], draws: int = 2000) -> np.ndarray:
    return accuracies(np.array(claim), np.array(hits), np.array(rows), draws, np.random.default_rng(0))


def test_log_gamma_is_that_of_the_standard_library() -> None:
    x = np.array([1e-9, 1e-3, 0.5, 1.0, 2.0, 3.3, 50.0, 1e4, 1e6])
    expected = np.array([math.lgamma(v) for v in x])
    np.testing.assert_allclose(log_gamma(x), expected, rtol=1e-9, atol=1e-8)


def test_many_rows_speak_for_themselves() -> None:
    found = drawn([0.5, 0.9], [30_000, 50_000], [100_000, 100_000])
    np.testing.assert_allclose(found.mean(axis=0), [0.3, 0.5], atol=0.002)
    # sd of a share of 100,000 rows: sqrt(.3 * .7 / 1e5) = .00145
    assert found[:, 0].std() == pytest.approx(0.00145, rel=0.1)


def test_a_cell_of_one_row_follows_the_other_cells() -> None:
    # nine cells say that accuracy is .6 of what is claimed at .5 and above; the tenth has one row and no hit
    claim = [*np.linspace(0.5, 0.9, 9), 0.7]
    rows = [*[2000.0] * 9, 1.0]
    hits = [*(0.6 * np.linspace(0.5, 0.9, 9) * 2000), 0.0]
    found = drawn(claim, hits, rows)
    assert found[:, -1].mean() == pytest.approx(0.42, abs=0.03)


def test_without_evidence_the_model_is_taken_to_be_calibrated() -> None:
    curve = fit_curve(np.array([0.2, 0.8]), np.array([0.0, 0.0]), np.array([0.0, 0.0]))
    np.testing.assert_allclose(curve.mean, np.tile([0.0, 1.0], (len(curve.mean), 1)), atol=1e-6)
    np.testing.assert_allclose(curve.root @ curve.root.transpose(0, 2, 1), np.tile(np.eye(2), (len(curve.mean), 1, 1)))


def test_accuracies_that_scatter_are_told_from_a_curve() -> None:
    rng = np.random.default_rng(1)
    claim, rows = np.full(200, 0.5), np.full(200, 500.0)
    smooth = fit_curve(claim, rng.binomial(500, 0.5, 200).astype(float), rows)
    rough = fit_curve(claim, rng.binomial(500, rng.beta(5, 5, 200)).astype(float), rows)
    phi = np.geomspace(3.0, 1e5, len(smooth.weight))
    assert smooth.weight @ np.log10(phi) > 3.0
    assert 5 < 10 ** (rough.weight @ np.log10(phi)) < 20  # the truth is 10


def test_cells_without_a_hit_or_without_a_miss_stay_shares() -> None:
    found = drawn([1e-9, 0.0, 1.0, 0.5], [0, 0, 40, 0], [10_000, 3, 40, 1])
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert (found <= 1).all()


def test_a_scatter_weighs_what_the_counts_are_worth_under_it() -> None:
    """Against the integral of likelihood and prior over a grid of curves, where the weight is Laplace's."""
    claim, rows = np.array([0.2, 0.4, 0.5, 0.6, 0.8]), np.full(5, 30.0)
    hits = np.array([14.0, 5.0, 22.0, 10.0, 20.0])
    alpha, beta = np.meshgrid(np.linspace(-4, 4, 81), np.linspace(-3, 5, 81), indexing="ij")
    accuracy = 1 / (1 + np.exp(-(alpha[..., None] + beta[..., None] * np.log(claim / (1 - claim)))))
    found = fit_curve(claim, hits, rows).weight
    worth = []
    for phi in np.geomspace(3.0, 1e5, len(found)):
        a, b, whole = accuracy * phi, (1 - accuracy) * phi, np.full_like(accuracy, phi)
        own = log_gamma(a + hits) - log_gamma(a) + log_gamma(b + rows - hits) - log_gamma(b)
        own += log_gamma(whole) - log_gamma(whole + rows)
        worth.append(np.exp(own.sum(axis=-1) - 0.5 * (alpha**2 + (beta - 1) ** 2)).sum())
    np.testing.assert_allclose(found, np.array(worth) / np.sum(worth), atol=0.02)
