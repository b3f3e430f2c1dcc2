"""Class weights, class-balanced sampling and SMOTE, and how much of the class prior each of them corrects."""

from __future__ import annotations

import torch
from torch import Tensor

from calibrant.settings.heads import HeadConfig
from calibrant.train.heads.training.mixing import smote
from calibrant.train.losses import effective_number_weights
from calibrant.train.losses.prior import weight_strength
from calibrant.train.seeds import derive


def class_weights(config: HeadConfig, counts: Tensor) -> Tensor | None:
    """w_c (C,): 1/n, 1/sqrt(n), or the effective number's; a class without rows has weight 0. The mean is weighted."""
    name = config.loss.class_weights
    if name == "none":
        return None
    if name == "effective":
        return effective_number_weights(counts, beta=config.loss.weights_beta)
    n = counts.double()
    return torch.where(n > 0, n.clamp(min=1) ** (-1.0 if name == "inverse" else -0.5), 0.0)


def sampling_weights(name: str, counts: Tensor, y: Tensor) -> Tensor | None:
    """Weight of each row for drawing with replacement: classes equally often, or by the root of their size."""
    if name == "random":
        return None
    return (counts.double() ** (-1.0 if name == "balanced" else -0.5))[y].cpu()


def with_smote(config: HeadConfig, x: Tensor, y: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, dict[str, float]]:
    """The rows with the new ones of `mixing.smote` behind them, and the correction that these bring."""
    a = config.augment
    if not a.smote:
        return x, y, {}
    rng = torch.Generator().manual_seed(derive(config.seed, "smote"))
    more_x, more_y = smote(x, y, len(counts), fill=a.smote, neighbours=a.smote_neighbours, rng=rng)
    y_all = torch.cat([y, more_y])
    ratio = torch.bincount(y_all, minlength=len(counts)).double() / counts.double().clamp(min=1)
    return torch.cat([x, more_x]), y_all, corrections_of({"smote": weight_strength(ratio.cpu(), counts.cpu())})


def strength_of(weights: Tensor | None, counts: Tensor) -> float:
    """Strength of the prior correction in class weights, 0 without any."""
    return 0.0 if weights is None else weight_strength(weights.cpu(), counts.cpu())


def corrections_of(parts: dict[str, float]) -> dict[str, float]:
    """Those of the named corrections that are in force."""
    return {name: value for name, value in parts.items() if abs(value) > 1e-9}
