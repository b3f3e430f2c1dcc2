"""AdaFocal: focal loss whose gamma follows the calibration of the validation set."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from calibrant.train.losses.focal import focal_term, probability_loss
from calibrant.train.losses.shared.checks import at_least, in_range
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.target import Labels


class AdaFocal(Loss):
    """gamma_b > 0: (1 - p_y)^gamma_b CE_i; gamma_b < 0: (1 + p_y)^|gamma_b| CE_i; b the bin of p_y (Ghosh et al. 2022).

    After each epoch on_validation moves gamma_b by the gap e_b = confidence - accuracy of its bin: times exp(lam e_b)
    if positive, times exp(-lam e_b) if negative; |gamma_b| < `switch` jumps to the other sign's +-switch; then clipped
    to [gamma_min, gamma_max]. Bins hold equal shares of the validation confidences; before the first call equal widths.
    State: gamma (bins,), edges (bins - 1,).
    """

    gamma: Tensor
    edges: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        lam: float = 1.0,
        gamma: float = 1.0,
        bins: int = 15,
        gamma_min: float = -2.0,
        gamma_max: float = 20.0,
        switch: float = 0.2,
        **options: Unpack[BaseOptions],
    ) -> None:
        super().__init__(num_classes, **options)
        self.lam = in_range(lam, 0, float("inf"), "lam")
        self.bins = at_least(bins, 1, "bins")
        self.gamma_min, self.gamma_max, self.switch = gamma_min, gamma_max, in_range(switch, 0, 1, "switch")
        start = in_range(gamma, gamma_min, gamma_max, "gamma")
        self.register_buffer("gamma", torch.full((bins,), start, dtype=torch.float64))
        self.register_buffer("edges", torch.linspace(0, 1, bins + 1, dtype=torch.float64)[1:-1])

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        edges, gammas = self.edges.to(z), self.gamma.to(z)

        def term(ce: Tensor, miss: Tensor) -> Tensor:
            p = (-ce.detach()).exp()
            gamma = gammas[torch.bucketize(p, edges)]
            focal = focal_term(ce, miss, gamma.clamp(min=0))
            inverse = (2 - miss).pow(-gamma.clamp(max=0)) * ce  # 1 + p = 2 - (1 - p)
            return torch.where(gamma > 0, focal, inverse)

        return probability_loss(z, target, term)

    @torch.no_grad()
    def on_validation(self, probs: Tensor, labels: Tensor) -> None:
        if probs.ndim != 2 or len(probs) != len(labels) or len(probs) == 0:
            raise ValueError(
                f"probs {tuple(probs.shape)} and labels {tuple(labels.shape)} must be (N, C) and (N,), N > 0"
            )
        confidence, top = probs.double().max(1)
        order = confidence.argsort(stable=True)
        parts = torch.tensor_split(order, self.bins)
        hit = (top == labels.to(top.device)).double()
        gap = torch.stack([(confidence[i] - hit[i]).mean() if len(i) else confidence.new_zeros(()) for i in parts])
        starts = torch.tensor([len(p) for p in parts]).cumsum(0)[:-1].clamp(max=len(order) - 1)
        ranked = confidence[order]
        before = ranked[(starts - 1).clamp(min=0)]
        self.edges.copy_((before + ranked[starts]) / 2)  # half way between the neighbours of a cut
        self.move(gap)

    @torch.no_grad()
    def move(self, gap: Tensor) -> None:
        """gamma after an epoch whose validation gap (confidence - accuracy) per bin was `gap` (bins,)."""
        g, e = self.gamma, gap.to(self.gamma)
        moved = torch.where(g > 0, g * (self.lam * e).exp(), g * (-self.lam * e).exp())
        flipped = torch.full_like(g, self.switch).masked_fill_(g > 0, -self.switch)
        moved = torch.where(moved.abs() < self.switch, flipped, moved)
        self.gamma.copy_(moved.clamp(self.gamma_min, self.gamma_max))

    def diagnostics(self) -> dict[str, float | list[float]]:
        return {"gamma": self.gamma.tolist(), "edges": self.edges.tolist()}
