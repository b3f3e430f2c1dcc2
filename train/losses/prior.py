"""Class priors: their logarithm, weights made from them, and how often a model has been corrected for them.

A model fitted to P_train(y|x), which is proportional to pi_y P(x|y), gives the balanced Bayes rule once log pi is taken
out of it: either the training loss adds tau log pi and the test uses raw logits, or the test subtracts tau log pi.
Each route has strength tau; 1 is Bayes. Subtracting in training, or adding at test, corrects the wrong way round.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from calibrant.errors import ConfigError
from calibrant.train.losses.shared.loss import Loss
from calibrant.train.losses.shared.rows import at_least_float32


class DoubleCorrectionWarning(UserWarning):
    """The class prior is being corrected by more than one means at once."""


def as_counts(class_counts: Sequence[int] | Tensor, num_classes: int) -> Tensor:
    """Training images per class, float64 (C,), checked."""
    counts = torch.as_tensor(class_counts, dtype=torch.float64).flatten().cpu()
    if len(counts) != num_classes:
        raise ConfigError(f"class_counts has {len(counts)} entries, but there are {num_classes} classes")
    if not bool((counts.isfinite() & (counts >= 0)).all()) or float(counts.sum()) <= 0:
        raise ConfigError("class_counts must be non-negative and not all zero")
    return counts


def log_prior(class_counts: Sequence[int] | Tensor, num_classes: int | None = None) -> Tensor:
    """log pi (C,) float64, pi_c = n_c / n. One is added to every count if a class has none: log 0 would forbid it."""
    counts = as_counts(class_counts, len(class_counts) if num_classes is None else num_classes)
    if float(counts.min()) == 0:
        counts = counts + 1
    return counts.log() - counts.sum().log()


def effective_number_weights(class_counts: Sequence[int] | Tensor, *, beta: float = 0.9999) -> Tensor:
    """w_c = (1 - beta) / (1 - beta^n_c), scaled to sum C (Cui et al. 2019). (C,) float64.

    beta = 0 gives ones, beta -> 1 gives 1/n_c. A class without images gets weight 0 (the formula divides by zero).
    """
    counts = as_counts(class_counts, len(class_counts))
    if not 0 <= beta < 1:
        raise ConfigError(f"beta is {beta}, but must lie in [0, 1)")
    log_beta = torch.tensor(beta, dtype=torch.float64).log()
    share = -torch.expm1(counts * log_beta) if beta > 0 else (counts > 0).double()  # 1 - beta^n without cancellation
    weights = torch.where(counts > 0, (1 - beta) / share, 0.0)
    return weights * len(counts) / weights.sum()


def weight_strength(weights: Tensor, class_counts: Tensor) -> float:
    """Strength of the prior correction in class weights: minus the slope of log w against log n (w = 1/n has 1)."""
    used = (class_counts > 0) & (weights > 0)
    x, y = class_counts[used].double().log(), weights[used].double().log()
    x, y = x - x.mean(), y - y.mean()
    spread = float(x.square().sum())
    return 0.0 if spread < 1e-12 else -float((x * y).sum()) / spread


def post_hoc_logits(logits: Tensor, class_counts: Sequence[int] | Tensor, *, tau: float = 1.0) -> Tensor:
    """z - tau log pi: the balanced rule for a model trained without correction (Menon et al. 2021). (B, C, ...)."""
    z = at_least_float32(logits)
    prior = log_prior(class_counts, z.shape[1]).to(z)
    return z - tau * prior.reshape(-1, *(1 for _ in z.shape[2:]))


def total_correction(
    loss: Loss, *, post_hoc: float = 0.0, balanced_sampler: bool = False, others: Mapping[str, float] | None = None
) -> float:
    """Sum of all prior corrections, 1 being Bayes; warns where more than one is in force.

    Counted are the loss (`absorbed_prior_strength`), an adjustment after training, a class-balanced sampler (1), and
    `others` by name.
    """
    parts = {
        f"the loss {type(loss).__name__}": loss.absorbed_prior_strength,
        "post-hoc adjustment": post_hoc,
        "the class-balanced sampler": float(balanced_sampler),
        **(others or {}),
    }
    parts = {name: strength for name, strength in parts.items() if strength != 0}
    total = sum(parts.values())
    if len(parts) > 1:
        listed = " + ".join(f"{name} ({strength:.3g})" for name, strength in parts.items())
        warnings.warn(
            f"the class prior is corrected {len(parts)} times: {listed} = total strength {total:.3g}, and 1 is Bayes",
            DoubleCorrectionWarning,
            stacklevel=2,
        )
    return total
