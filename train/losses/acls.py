"""Adaptive and conditional label smoothing."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from calibrant.train.losses.shared.checks import in_range
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.target import Labels, cross_entropy_rows


class ACLS(Loss):
    """CE_i + alpha [ p1 sum_{k = argmax} max(0, z_ik - m)^2 + p2/(C-1) sum_{k != argmax} max(0, d_ik - m)^2 ].

    d_ik = max_l z_il - z_ik with the maximum detached; p1 = pos_lambda, p2 = neg_lambda (Park et al. 2023, their code).
    Tied entries all count as argmax. The first term punishes the raw logit, so adding a constant to all logits changes
    the loss; `shift_invariant` puts max_k z_k - min_k z_k in its place.
    Differs: ignored rows leave the penalty as well, in the authors' code only CE.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        alpha: float = 0.1,
        margin: float = 6.0,
        pos_lambda: float = 1.0,
        neg_lambda: float = 0.1,
        shift_invariant: bool = False,
        **options: Unpack[BaseOptions],
    ) -> None:
        super().__init__(num_classes, **options)
        self.alpha = in_range(alpha, 0, float("inf"), "alpha")
        self.margin = in_range(margin, 0, float("inf"), "margin")
        self.pos_lambda = in_range(pos_lambda, 0, float("inf"), "pos_lambda")
        self.neg_lambda = in_range(neg_lambda, 0, float("inf"), "neg_lambda")
        self.shift_invariant = shift_invariant

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        ce = cross_entropy_rows(z.log_softmax(1), target)
        top = z.max(1).values
        ties = (z == top.detach()[:, None]).sum(1)
        if int(ties.max()) > 1:
            top = z.amax(1)  # slower, but its gradient is shared evenly by tied entries, hence the factor `ties`
        height = top - z.amin(1) if self.shift_invariant else top
        peak = ties * (height - self.margin).relu().square()
        gap = ((top.detach() - self.margin)[:, None] - z).relu()  # 0 at the argmax, for margin >= 0
        others = max(self.num_classes - 1, 1)
        return ce + self.alpha * (self.pos_lambda * peak + self.neg_lambda / others * gap.square().sum(1))
