"""MMCE, a kernel measure of miscalibration within the batch."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from calibrant.train.losses.shared.checks import in_range
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.target import Labels, cross_entropy_rows


def mmce(r: Tensor, c: Tensor, width: float) -> Tensor:
    """(1/N^2) sum_ij (c_i - r_i)(c_j - r_j) K_ij, K_ij = exp(-|r_i - r_j| / width). r, c: (N,)."""
    gap = c - r
    return torch.einsum("i,ij,j->", gap, _kernel(r, width), gap) / len(r) ** 2


def mmce_weighted(r: Tensor, c: Tensor, width: float) -> Tensor:
    """sqrt(S_cc/(k^2 + 1e-5) + S_nn/(n^2 + 1e-5) - 2 S_cn/(k n + 1e-5) + 1e-10), k correct rows and n wrong ones.

    S_ab is the mean over pairs of kernel times weights, 1 - r for correct rows and r for wrong ones: the authors' code
    divides by the number of pairs twice. 0 if all rows are correct or all are wrong.
    """
    right, wrong = c, 1 - c
    k, n = float(right.sum()), float(wrong.sum())
    if k == 0 or n == 0:
        return 0 * r.sum()

    def over(pairs: float) -> float:
        return float(1 / (torch.tensor(pairs, dtype=torch.float32) + 1e-5))  # rounded as in the authors' code

    kernel = _kernel(r, width)
    u, v = right * (1 - r) / k, wrong * r / n  # the first division by the number of pairs
    kernel_v = kernel @ v
    value = u @ kernel @ u * over(k * k) + v @ kernel_v * over(n * n) - 2 * (u @ kernel_v) * over(k * n)
    return (value.clamp(min=0) + 1e-10).sqrt()


def _kernel(r: Tensor, width: float) -> Tensor:
    return (-(r[:, None] - r[None, :]).abs() / width).exp()


class MMCE(Loss):
    """CE + lam * MMCE over the batch, r_i = max_k p_ik, c_i = [argmax = y] a constant (Kumar et al. 2018).

    weighted: the form that weighs correct and wrong rows apart; lam is 1, or 2 if weighted, unless given.
    The plain form has no square root, as in the code in circulation. For soft targets c_i is the mass on the argmax.
    Memory is O(N^2), N rows or pixels. In reduction "none" every row carries the whole term.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        lam: float | None = None,
        weighted: bool = False,
        width: float = 0.4,
        **options: Unpack[BaseOptions],
    ) -> None:
        super().__init__(num_classes, **options)
        self.weighted = weighted
        self.lam = in_range((2.0 if weighted else 1.0) if lam is None else lam, 0, float("inf"), "lam")
        self.width = width

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        log_p = z.log_softmax(1)
        return cross_entropy_rows(log_p, target) + self.lam * self.term(log_p, target)

    def term(self, log_p: Tensor, target: Labels) -> Tensor:
        """The regulariser alone, a scalar."""
        top, predicted = log_p.max(1)
        c = target.mass_at(predicted, log_p.dtype)
        return (
            mmce_weighted(top.exp(), (c > 0.5).to(c), self.width) if self.weighted else mmce(top.exp(), c, self.width)
        )
