from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from calibrant.train.heads.training.solve import (
    class_means,
    discriminant,
    ledoit_wolf,
    logistic,
    nearest_mean,
    posterior_means,
)


def test_logistic_regression_agrees_with_scikit_learn(toy: tuple[Tensor, Tensor]) -> None:
    from sklearn.linear_model import LogisticRegression

    x, y = toy
    l2 = 1e-2
    reference = LogisticRegression(C=1 / (l2 * len(x)), tol=1e-10, max_iter=5000).fit(x.double().numpy(), y.numpy())
    weight, bias = logistic(x.double(), F.one_hot(y, 6).double(), l2=l2)
    np.testing.assert_allclose(weight.numpy(), reference.coef_ - reference.coef_.mean(0), atol=1e-4)
    np.testing.assert_allclose(
        (bias - bias.mean()).numpy(), reference.intercept_ - reference.intercept_.mean(), atol=1e-4
    )


def test_weighted_logistic_regression_is_that_of_repeated_rows(toy: tuple[Tensor, Tensor]) -> None:
    x, y = toy
    times = torch.arange(len(x)) % 3 + 1
    mass = F.one_hot(y, 6).double()
    a = logistic(x.double(), mass, l2=1e-2, row_weights=times.double())
    many = x.double().repeat_interleave(times, 0), mass.repeat_interleave(times, 0)
    b = logistic(*many, l2=1e-2)
    torch.testing.assert_close(a[0], b[0], rtol=1e-4, atol=1e-5)


def test_shrunken_class_means_by_hand() -> None:
    x = torch.tensor([[0.0], [2.0], [10.0]])  # mean of all: 4
    y = torch.tensor([0, 0, 1])
    assert class_means(x, y, 2, prior_rows=0).flatten().tolist() == [1.0, 10.0]
    # (2 * 1 + 2 * 4) / 4 and (10 + 2 * 4) / 3
    assert class_means(x, y, 2, prior_rows=2).flatten().tolist() == pytest.approx([2.5, 6.0])


def test_nearest_mean_decides_by_distance(toy: tuple[Tensor, Tensor]) -> None:
    x, y = toy
    weight, bias = nearest_mean(x, y, 6, prior_rows=0, cosine=False)
    assert bias is not None
    means = torch.stack([x[y == k].mean(0) for k in range(6)])
    assert torch.equal((x @ weight.T + bias).argmax(1), torch.cdist(x, means).argmin(1))


def test_discriminant_agrees_with_scikit_learn(toy: tuple[Tensor, Tensor]) -> None:
    """Equal priors; sklearn weighs within-class covariances by the priors, so classes here have equal sizes."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    x, y = toy
    rows = torch.cat([torch.nonzero(y == k)[:3, 0] for k in range(6)])
    x, y = x[rows].double(), y[rows]
    weight, bias = discriminant(x, y, 6, prior_rows=0, shrinkage=0.4)
    # sklearn divides by n, we by n - C: a common factor of the logits.
    factor = len(x) / (len(x) - 6)
    reference = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.4, priors=[1 / 6] * 6).fit(x.numpy(), y.numpy())
    np.testing.assert_allclose(weight.numpy() * factor, reference.coef_, rtol=1e-4, atol=1e-4)
    expected = reference.intercept_ - np.log(1 / 6)
    np.testing.assert_allclose(bias.numpy() * factor, expected, rtol=1e-4, atol=1e-4)


def test_posterior_means_by_hand() -> None:
    """One feature, S = 2, classes of 3 and 1 images with means 1 and -3, centre 0, between 0.5.

    B = .5 (3 * 1 + 1 * 9) / 4 = 1.5; m = mean * n B / (n B + S): 1 * 4.5 / 6.5 and -3 * 1.5 / 3.5.
    """
    means, counts = torch.tensor([[1.0], [-3.0]]).double(), torch.tensor([3.0, 1.0]).double()
    weight, bias = posterior_means(means, torch.zeros(1).double(), counts, torch.tensor([[2.0]]).double(), between=0.5)
    m = np.asarray([4.5 / 6.5, -3 * 1.5 / 3.5])
    np.testing.assert_allclose(weight[:, 0].numpy(), m / 2)
    np.testing.assert_allclose(bias.numpy(), -(m**2) / 4)


def test_posterior_means_solve_the_matrix_equation_and_ignore_the_origin() -> None:
    """m_k - g = B (B + S/n_k)^-1 (mean_k - g), in any coordinates."""
    rng = torch.Generator().manual_seed(0)
    means = torch.randn(4, 6, dtype=torch.float64, generator=rng)
    counts = torch.tensor([9.0, 4.0, 2.0, 1.0]).double()
    a = torch.randn(6, 6, dtype=torch.float64, generator=rng)
    s = a @ a.T + torch.eye(6)
    g = (counts[:, None] * means).sum(0) / counts.sum()
    weight, bias = posterior_means(means, g, counts, s, between=0.3)
    d = means - g
    b = 0.3 * (d.T * counts) @ d / counts.sum()
    for k in range(4):
        m = b @ torch.linalg.solve(b + s / counts[k], d[k])
        torch.testing.assert_close(weight[k], torch.linalg.solve(s, m))
        torch.testing.assert_close(bias[k], -0.5 * m @ torch.linalg.solve(s, m) - weight[k] @ g)
    moved = posterior_means(means + 5.0, g + 5.0, counts, s, between=0.3)
    x = torch.randn(3, 6, dtype=torch.float64, generator=rng)
    torch.testing.assert_close(x @ weight.T + bias, (x + 5.0) @ moved[0].T + moved[1])


def test_a_large_between_leaves_the_class_means_alone_and_views_do_not_count_as_images(
    toy: tuple[Tensor, Tensor],
) -> None:
    x, y = toy
    free, huge = discriminant(x, y, 6), discriminant(x, y, 6, between=1e9)
    z = [x @ w.T + b for w, b in (free, huge)]
    z = [v - v.mean(1, keepdim=True) for v in z]
    torch.testing.assert_close(z[1], z[0], rtol=1e-3, atol=1e-3)
    once = discriminant(x, y, 6, between=0.1)
    twice = discriminant(torch.cat([x, x]), torch.cat([y, y]), 6, between=0.1, copies=2)
    factor = (2 * len(x) - 6) / (2 * (len(x) - 6))  # of the covariance, by its degrees of freedom
    assert not torch.allclose(once[0], discriminant(torch.cat([x, x]), torch.cat([y, y]), 6, between=0.1)[0], rtol=0.05)
    torch.testing.assert_close(twice[0], once[0] * factor, rtol=0.05, atol=0.02)


def test_ledoit_wolf_agrees_with_scikit_learn() -> None:
    from sklearn.covariance import ledoit_wolf_shrinkage

    x = torch.randn(30, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 13)
    expected = ledoit_wolf_shrinkage(x.numpy(), assume_centered=True)
    assert 0.05 < expected < 0.95
    assert ledoit_wolf(x) == pytest.approx(expected, rel=1e-9)
    # Rows that come in pairs are half as many.
    assert ledoit_wolf(torch.cat([x, x]), copies=2) == pytest.approx(expected, rel=1e-9)
