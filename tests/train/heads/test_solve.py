from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from calibrant.train.heads.solve import class_means, discriminant, logistic, nearest_mean


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
