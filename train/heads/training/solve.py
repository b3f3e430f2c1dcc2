"""Heads in closed form or by L-BFGS: multinomial logistic regression, nearest class mean, linear discriminant."""

from __future__ import annotations

import logging
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from calibrant.errors import DataError

log = logging.getLogger(__name__)


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
        [weight, bias],
        lr=1.0,
        max_iter=max_iterations,
        history_size=20,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-10 if exact else 1e-6,
        tolerance_change=1e-14 if exact else 1e-9,
    )

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
        log.warning("logistic regression stopped with gradient %.1e after %d iterations", slope, max_iterations)
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


def discriminant(
    x: Tensor,
    y: Tensor,
    classes: int,
    *,
    prior_rows: float = 0.0,
    shrinkage: float | Literal["ledoit-wolf"] = 0.5,
    between: float = 0.0,
    copies: int = 1,
) -> tuple[Tensor, Tensor]:
    """Linear discriminant with equal priors: W = S^-1 m_k, b = -m_k S^-1 m_k / 2.

    S = (1 - s) S_within + s trace(S_within)/D I, S_within pooled over classes; m_k as in `class_means`, or with
    `between` as in `posterior_means`. Every image gave `copies` rows. Float64.
    """
    x = x.double()
    plain = class_means(x, y, classes, prior_rows=0.0 if _all_present(y, classes) else max(prior_rows, 1e-9))
    residuals = x - plain[y]
    cov = residuals.T @ residuals / max(1, len(x) - classes)
    mean_variance = max(float(cov.trace()) / x.shape[1], 1e-12)
    s = ledoit_wolf(residuals, copies=copies) if isinstance(shrinkage, str) else shrinkage
    cov.mul_(1 - s).diagonal().add_(s * mean_variance + 1e-9 * mean_variance)
    if between:
        counts = torch.bincount(y, minlength=classes).double() / copies
        weight, bias = posterior_means(plain, x.mean(0), counts, cov, between=between)
        return weight.float(), bias.float()
    means = class_means(x, y, classes, prior_rows=prior_rows)
    weight = torch.linalg.solve(cov, means.T).T
    return weight.float(), (-0.5 * (weight * means).sum(1)).float()


def posterior_means(
    means: Tensor, centre: Tensor, counts: Tensor, within: Tensor, *, between: float
) -> tuple[Tensor, Tensor]:
    """The discriminant (C, D), (C,) of  m_k = g + B (B + S/n_k)^-1 (mean_k - g): every direction is shrunken by itself.

    The posterior mean of class k under mean_k ~ N(m_k, S/n_k), m_k ~ N(g, B), as in probabilistic linear discriminant
    analysis (Ioffe 2006); the scatter of the class means is B / between. A direction in which classes differ by more
    than a mean of n_k images errs is kept, the others vanish, the more the fewer images there are.
    Differs: no class has a predictive covariance of its own (it would be S + (B^-1 + n_k S^-1)^-1), so that the logits
    stay linear in the features.
    """
    root = torch.linalg.cholesky(within)
    u = torch.linalg.solve_triangular(root, (means - centre).T, upper=False).T  # S = I in these coordinates
    scatter = u * (counts / counts.sum() * between).sqrt()[:, None]
    _, singular, axes = torch.linalg.svd(scatter, full_matrices=False)  # B = axes' diag(singular^2) axes
    strength = counts[:, None] * singular.square()
    shrunken = (strength / (1 + strength) * (u @ axes.T)) @ axes
    weight = torch.linalg.solve_triangular(root.T, shrunken.T, upper=True).T
    return weight, -0.5 * shrunken.square().sum(1) - weight @ centre


def ledoit_wolf(residuals: Tensor, *, copies: int = 1) -> float:
    """s of (1 - s) S + s trace(S)/D I with the least expected squared error (Ledoit and Wolf 2004), S = R'R / N.

    s = min(1, b / d),  d = |S - m I|^2,  b = (mean_i |r_i|^4 - |S|^2) / n,  n = N / copies independent rows.
    """
    rows, width = residuals.shape
    cov = residuals.T @ residuals / rows
    square = float(cov.square().sum())
    distance = square - float(cov.trace()) ** 2 / width
    error = (float(residuals.square().sum(1).square().mean()) - square) * copies / rows
    return min(1.0, max(0.0, error / distance)) if distance > 0 else 1.0


def _all_present(y: Tensor, classes: int) -> bool:
    return int(torch.bincount(y, minlength=classes).min()) > 0
