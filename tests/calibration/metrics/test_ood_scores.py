"""Scores of how much a row is like the known ones, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.metrics import ood_scores


def test_scores_of_logits_by_hand() -> None:
    z = np.array([[np.log(2.0), np.log(6.0)], [1000.0, 1000.0]])
    assert ood_scores.energy(z) == pytest.approx([np.log(8.0), 1000 + np.log(2.0)])
    assert ood_scores.msp(z) == pytest.approx([0.75, 0.5])
    assert ood_scores.max_logit(z) == pytest.approx([np.log(6.0), 1000.0])


def test_the_norm_is_the_sum_of_absolute_values() -> None:
    assert ood_scores.norm(np.array([[3.0, -4.0]])).tolist() == [7.0]


def test_mahalanobis_is_the_distance_to_the_nearest_mean_in_units_of_the_scatter() -> None:
    """Two classes at 0 and 10 on the first axis, variance 4 there and 1 on the second."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 20_000)
    f = rng.normal(size=(40_000, 2)) * [2.0, 1.0] + np.outer(labels, [10.0, 0.0])
    score = ood_scores.mahalanobis(f, labels)
    found = score(np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [10.0, 1.0]]))
    np.testing.assert_allclose(found, [0.0, -1.0, -4.0, -1.0], atol=0.06)


def test_a_feature_that_never_varies_does_no_harm() -> None:
    f = np.stack([np.random.default_rng(0).normal(size=50), np.ones(50)], 1)
    assert np.isfinite(ood_scores.mahalanobis(f, np.zeros(50, np.int64))(f)).all()


def test_neighbours_are_counted_on_the_sphere() -> None:
    """References at 0, 90 and 180 degrees; the second nearest of 0 degrees is at 90: chord of length root 2."""
    reference = np.array([[5.0, 0.0], [0.0, 0.1], [-1.0, 0.0]])
    assert ood_scores.knn(reference, k=2)(np.array([[2.0, 0.0]])) == pytest.approx([-np.sqrt(2)])
    assert ood_scores.knn(reference, k=99)(np.array([[2.0, 0.0]])) == pytest.approx([-2.0])
