"""NCI: how large a sample's feature norm is, measured against the training stream."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn


class NormIndex(nn.Module):
    """gamma_i = (a_i - mu) / (sd + 1e-3), mu and sd running averages of the batch's mean and standard deviation of a.

    mu <- theta mean(a) + (1 - theta) mu, sd likewise (a mean of deviations, not of variances), deviation with N - 1.
    In training they are updated before use. theta (momentum) weighs the NEW batch. Start: mu 20, sd 100, or with
    init="first_batch" the first batch's own values (a small theta takes long to forget 20 and 100).
    Rows that are not finite are left out; with fewer than two rows left sd stays as it is, with none mu too.
    Differs: in the authors' code one row makes sd NaN for good; `single_row_nan=True` gives that back.
    """

    batch_mean: Tensor
    batch_std: Tensor
    updates: Tensor

    def __init__(self, *, momentum: float, init: Literal["published", "first_batch"], single_row_nan: bool) -> None:
        super().__init__()
        self.momentum, self.init, self.single_row_nan = momentum, init, single_row_nan
        self.register_buffer("batch_mean", torch.tensor([20.0]))
        self.register_buffer("batch_std", torch.tensor([100.0]))
        self.register_buffer("updates", torch.zeros(2, dtype=torch.int64))  # of the mean, of the deviation

    @torch.no_grad()
    def forward(self, a: Tensor) -> Tensor:
        """a: (N,) -> gamma (N,)."""
        if self.training:
            self._update(a)
        return (a - self.batch_mean.to(a)) / (self.batch_std.to(a) + 1e-3)

    def _update(self, a: Tensor) -> None:
        """No branch on values: a GPU is not made to wait."""
        if a.dtype == torch.float64 and self.batch_mean.dtype == torch.float32:  # keep the digits of float64 rows
            self.batch_mean, self.batch_std = self.batch_mean.double(), self.batch_std.double()
        a = a.to(self.batch_mean.dtype)
        usable = a.isfinite()
        n = usable.sum()
        mean = torch.where(usable, a, 0).sum() / n.clamp(min=1)
        squares = torch.where(usable, a - mean, 0).square().sum()
        std = (squares / (n - 1).clamp(min=1)).sqrt()
        if self.single_row_nan:
            std = torch.where(n < 2, torch.nan, std)
        accept = torch.stack([(n >= 1) & mean.isfinite(), (n >= 2) & std.isfinite() | bool(self.single_row_nan)])
        theta = torch.full((2,), self.momentum, dtype=a.dtype, device=a.device)
        if self.init == "first_batch":
            theta = torch.where(self.updates == 0, 1.0, theta)
        old = torch.cat([self.batch_mean, self.batch_std])
        new = torch.where(accept, theta * torch.stack([mean, std]) + (1 - theta) * old, old)
        self.batch_mean.copy_(new[:1])
        self.batch_std.copy_(new[1:])
        self.updates += accept
