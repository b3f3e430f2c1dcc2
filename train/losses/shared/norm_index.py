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
        if a.dtype == torch.float64 and self.batch_mean.dtype == torch.float32:  # keep the digits of float64 rows
            self.batch_mean, self.batch_std = self.batch_mean.double(), self.batch_std.double()
        finite = a.isfinite()
        a = (a if bool(finite.all()) else a[finite]).to(self.batch_mean.dtype)
        if len(a) >= 1:
            self._blend(self.batch_mean, a.mean(), 0)
        if len(a) >= 2:
            self._blend(self.batch_std, a.std(), 1)
        elif self.single_row_nan:
            self.batch_std.fill_(torch.nan)

    def _blend(self, average: Tensor, new: Tensor, which: int) -> None:
        if not bool(new.isfinite()):  # norms near the largest float: their sum overflows
            return
        first = self.init == "first_batch" and int(self.updates[which]) == 0
        average.lerp_(new, 1.0 if first else self.momentum)
        self.updates[which] += 1
