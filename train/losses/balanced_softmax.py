"""Balanced softmax, also known as the logit-adjusted loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from torch import Tensor

from calibrant.train.losses.prior import log_prior
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.target import Labels, cross_entropy_rows


class BalancedSoftmax(Loss):
    """L_i = CE(z + tau log pi, y), pi the class frequencies in training.

    Ren et al. 2020 (tau = 1), Menon et al. 2021.
    The raw z are then free of the prior: predict with them, and do not adjust again (see prior.total_correction).
    Where the test data follow pi, add tau log pi back for a calibrated probability. A class without images: all
    counts are raised by one.
    """

    log_pi: Tensor

    def __init__(
        self,
        num_classes: int,
        class_counts: Sequence[int] | Tensor,
        *,
        tau: float = 1.0,
        **options: Unpack[BaseOptions],
    ) -> None:
        super().__init__(num_classes, **options)
        self.tau = float(tau)
        self.register_buffer("log_pi", log_prior(class_counts, num_classes))

    @property
    def absorbed_prior_strength(self) -> float:
        return self.tau

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        return cross_entropy_rows((z + (self.tau * self.log_pi).to(z)).log_softmax(1), target)
