"""Heads in closed form or by L-BFGS: multinomial logistic regression, nearest class mean, linear discriminant."""

from __future__ import annotations

import logging

import torch
from torch import Tensor
from torch.nn import functional as F

from calibrant.errors import DataError

logger = logging.getLogger(__name__)


def logistic(
    x: Tensor,
    mass: Tensor,
    *,
    l2: float,
    row_weights: Tensor | None = None,
    offset: Tensor | None = None,
    max_iterations: int = 500,
) -> tuple[Tensor, Tensor]:
    """W (C, D), b (C,) of  min  sum_i w_i CE(W x_i + b + offset, q_i) / sum_i w_i + l2/2 |W|^2, by L-BFGS.

    mass: q (N, C) target probabilities; offset: tau log pi of balanced softmax. Strictly convex for l2 > 0 up to a
    common shift of b, which stays 0 on average because it starts there. Nothing is random.
    """
    n, width = x.shape
    classes = mass.shape[1]
    weight = torch.zeros(classes, width, dtype=x.dtype, device=x.device, requires_grad=True)
    bias = torch.zeros(classes, dtype=x.dtype, device=x.device, requires_grad=True)
    w = (
        torch.full((n,), 1.0 / n, dtype=x.dtype, device=x.device)
        if row_weights is None
        else row_weights / row_weights.sum()
    )
    shift = torch.zeros(classes, dtype=x.dtype, device=x.device) if offset is None else offset.to(x)
    exact = x.dtype == torch.float64
    solver = torch.optim.LBFGS(
        [weight, bias], lr=1.0, max_iter=max_iterations, history_size=20, line_search_fn="strong_wolfe",
        tolerance_grad=1e-10 if exact else 1e-6, tolerance_change=1e-14 if exact else 1e-9,
    )  # fmt: skip

    def closure() -> Tensor:
        solver.zero_grad()
        log_p = F.log_softmax(F.linear(x, weight, bias) + shift, 1)
        value = -(w * (mass * log_p).sum(1)).sum() + 0.5 * l2 * weight.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    solver.step(closure)  # type: ignore[no-untyped-call]
    closure()
    assert weight.grad is not None  # for the type checker: closure() has just run backward
    slope = float(weight.grad.abs().max())
    if slope > 1e-4:
        logger.warning("logistic regression stopped with gradient %.1e after %d iterations", slope, max_iterations)
    return weight.detach(), bias.detach()


def class_means(x: Tensor, y: Tensor, classes: int, *, prior_rows: float) -> Tensor:
    """m_k = (n_k mean_k + r mean) / (n_k + r), (C, D): small classes are drawn to the mean of all; r = prior_rows."""
    counts = torch.bincount(y, minlength=classes).to(x)
    if float(counts.min()) + prior_rows == 0:
        raise DataError(f"class {int(counts.argmin())} has no training row and so no mean", fix="set head.prior_rows")
    sums = torch.zeros(classes, x.shape[1], dtype=x.dtype, device=x.device).index_add_(0, y, x)
    return (sums + prior_rows * x.mean(0)) / (counts + prior_rows)[:, None]


def nearest_mean(
    x: Tensor, y: Tensor, classes: int, *, prior_rows: float, cosine: bool
) -> tuple[Tensor, Tensor | None]:
    """Logits of equal-prior Gaussians with one spherical variance s: z_k = (m_k . f - |m_k|^2 / 2) / s.

    cosine: the directions m_k / |m_k| and no bias, for features that are normalised.
    """
    means = class_means(F.normalize(x, dim=1) if cosine else x, y, classes, prior_rows=prior_rows)
    if cosine:
        return F.normalize(means, dim=1), None
    within = x - class_means(x, y, classes, prior_rows=0.0 if _all_present(y, classes) else prior_rows)[y]
    spread = float(within.square().sum() / max(1, len(x) - classes) / x.shape[1])
    spread = max(spread, 1e-12)
    return means / spread, -0.5 * means.square().sum(1) / spread


def discriminant(x: Tensor, y: Tensor, classes: int, *, prior_rows: float, shrinkage: float) -> tuple[Tensor, Tensor]:
    """Linear discriminant with equal priors: W = S^-1 m_k, b = -m_k S^-1 m_k / 2.

    S = (1 - s) S_within + s trace(S_within)/D I, S_within pooled over classes; m_k as in `class_means`. Float64.
    """
    x = x.double()
    means = class_means(x, y, classes, prior_rows=prior_rows)
    plain = class_means(x, y, classes, prior_rows=0.0 if _all_present(y, classes) else prior_rows)
    within = x - plain[y]
    cov = within.T @ within / max(1, len(x) - classes)
    width = x.shape[1]
    mean_variance = max(float(cov.trace()) / width, 1e-12)
    cov.mul_(1 - shrinkage).diagonal().add_(shrinkage * mean_variance + 1e-9 * mean_variance)
    weight = torch.linalg.solve(cov, means.T).T
    return weight.float(), (-0.5 * (weight * means).sum(1)).float()


def _all_present(y: Tensor, classes: int) -> bool:
    return int(torch.bincount(y, minlength=classes).min()) > 0
