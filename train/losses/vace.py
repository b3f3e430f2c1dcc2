"""VACE: cross-entropy with a temperature per class that follows the scatter of the class's features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Unpack, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.artifacts.card_checks import GAUGES, Gauge
from calibrant.errors import ConfigError, did_you_mean
from calibrant.train.losses.prior import as_counts
from calibrant.train.losses.shared.checks import at_least, in_range
from calibrant.train.losses.shared.gauge import gauged
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.rows import at_least_float32
from calibrant.train.losses.shared.target import Labels, cross_entropy_rows

Mode = Literal["published", "centered", "explicit"]
Follows = Literal["scatter", "frequency"]

_VALID = 1 - 1e-6  # a class counts once it has a scatter, that is after two rows
_NO_SCATTER = 1e-12


class ClassScatter(nn.Module):
    """Running mean and variance of the features of each class, unbiased down to one row of a class per step.

    Batch with k rows of class c, mean mu, biased variance vb (mean over rows and coordinates of (f - mu)^2):
        delta = mean over coordinates of (mu - m)^2
        v <- (1-rho) v + rho vb + rho (1-rho) delta;  m <- (1-rho) m + rho mu;  W <- (1-rho)^2 W + rho^2 / k
    and m = mu, v = vb, W = 1/k at first sight (the same with rho = 1). v / (1 - W) is unbiased. An average of batch
    variances is not: it tends to (k-1)/k of the variance, 0 where a class shows one row per batch.
    State: mean (C, D), scatter v (C,), weight_sq W (C,), count (C,) rows seen.
    """

    mean: Tensor
    scatter: Tensor
    weight_sq: Tensor
    count: Tensor

    def __init__(self, num_classes: int, feature_dim: int, *, rho: float) -> None:
        super().__init__()
        self.rho = rho
        self.register_buffer("mean", torch.zeros(num_classes, feature_dim))
        self.register_buffer("scatter", torch.zeros(num_classes))
        self.register_buffer("weight_sq", torch.ones(num_classes))
        self.register_buffer("count", torch.zeros(num_classes, dtype=torch.int64))

    @torch.no_grad()
    def update(self, f: Tensor, y: Tensor) -> None:
        """Take in rows f (N, D) of classes y (N,). Touches only the classes present; non-finite rows are left out."""
        if f.dtype == torch.float64 and self.mean.dtype == torch.float32:  # an average must not lose digits of its rows
            self.mean, self.scatter, self.weight_sq = self.mean.double(), self.scatter.double(), self.weight_sq.double()
        f = f.to(self.mean.dtype)
        finite = f.sum(1).isfinite()
        if not bool(finite.all()):
            f, y = f[finite], y[finite]
        if len(y) == 0:
            return
        classes, position, rows = torch.unique(y, return_inverse=True, return_counts=True)
        k = rows.to(f.dtype)
        mu = f.new_zeros(len(classes), f.shape[1]).index_add_(0, position, f).div_(k[:, None])
        squares = torch.linalg.vector_norm(f - mu[position], dim=1).square_().div_(f.shape[1])
        vb = torch.zeros_like(k).index_add_(0, position, squares).div_(k)
        old = self.mean[classes]
        step = mu.sub_(old)
        delta = torch.linalg.vector_norm(step, dim=1).square_().div_(f.shape[1])
        rho = torch.full_like(k, self.rho).masked_fill_(self.count[classes] == 0, 1.0)
        keep = 1 - rho
        self.scatter[classes] = keep * self.scatter[classes] + rho * vb + rho * keep * delta
        self.weight_sq[classes] = keep.square() * self.weight_sq[classes] + rho.square() / k
        self.mean.index_copy_(0, classes, old.addcmul_(step, rho[:, None]))
        self.count[classes] += rows

    def unbiased(self) -> tuple[Tensor, Tensor]:
        """vhat = v / (1 - W) (C,), and which classes have seen at least two rows (C,)."""
        valid = self.weight_sq < _VALID
        return torch.where(valid, self.scatter / (1 - self.weight_sq).clamp(min=1e-6), 0), valid


class VACE(Loss):
    """L = -log softmax(g(z) / tau)_y with tau_c = clip(a + b vhat_c), vhat_c the scatter of class c (see ClassScatter).

    mode     tau_c before the clip to [tau_min, tau_max]; r_c = vhat_c / sbar, sbar = mean of vhat over classes seen
    published  a + lam r_c, a = 1, that is b = lam / sbar: softens all classes by 1 + lam on average (default)
    centered   1 + lam (r_c - 1): mean 1, equal scatter gives cross-entropy exactly
    explicit   a + b vhat_c (also taken when b is given)
    A class with fewer than two rows seen has r = 1. tau = 1 before any class has scatter and in `warmup_steps` steps.
    Statistics are updated first and used in the same step; eval leaves them alone. tau carries no gradient.
    gauge g: none z (published); mean z - mean z; max z - max z; logsoftmax log softmax z. Only gauge none depends on
    a constant added to all logits; only max never moves the argmax; none and mean can be folded into the head.
    tau belongs to the model: the probability is softmax(adjust_logits(z)), raw logits are over-confident.
    Soft targets: rows of a single class feed the statistics, mixed rows do not.
    follows = "frequency" is a control: r_c = (1 / n_c) / mean(1 / n), n_c the training images, not the scatter.
    Memory is O(C D). `freeze_sbar` keeps the first sbar after warm-up; features drift, so tau then tends to its bounds.
    """

    needs_features = True
    steps: Tensor
    frozen_sbar: Tensor
    rarity: Tensor | None

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        *,
        lam: float | None = None,
        a: float | None = None,
        b: float | None = None,
        rho: float = 0.1,
        tau_min: float = 0.5,
        tau_max: float = 2.0,
        gauge: Gauge = "none",
        mode: Mode | Literal["seed"] | None = None,
        warmup_steps: int = 0,
        freeze_sbar: bool = False,
        normalize_features: bool = False,
        follows: Follows = "scatter",
        class_counts: Sequence[int] | Tensor | None = None,
        **options: Unpack[BaseOptions],
    ) -> None:
        super().__init__(num_classes, **options)
        if follows not in get_args(Follows):
            raise ConfigError(f"vace follows no {follows!r}", fix=did_you_mean(str(follows), get_args(Follows)))
        rarity = None
        if follows == "frequency":
            if class_counts is None:
                raise ConfigError('vace needs class_counts to follow "frequency"')
            rarity = 1 / as_counts(class_counts, num_classes).clamp(min=1).float()
            rarity = rarity / rarity.mean()
        self.register_buffer("rarity", rarity, persistent=False)
        self.mode = _mode(mode, lam, a, b)
        self.lam = in_range(0.5 if lam is None else lam, 0, float("inf"), "lam")
        self.a, self.b = 1.0 if a is None else float(a), None if b is None else float(b)
        if gauge not in GAUGES:
            raise ConfigError(f"vace has no gauge {gauge!r}", fix=did_you_mean(str(gauge), GAUGES))
        self.gauge: Gauge = gauge
        if not 0 < tau_min <= tau_max:
            raise ConfigError(f"tau_min {tau_min} and tau_max {tau_max} do not satisfy 0 < tau_min <= tau_max")
        self.tau_min, self.tau_max = tau_min, tau_max
        self.warmup_steps = at_least(warmup_steps, 0, "warmup_steps")
        self.freeze_sbar, self.normalize_features = freeze_sbar, normalize_features
        if rho == 0:
            raise ConfigError("rho is 0, so the statistics would never change")
        self.feature_dim = at_least(feature_dim, 1, "feature_dim")
        self.statistics = ClassScatter(num_classes, feature_dim, rho=in_range(rho, 0, 1, "rho"))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("frozen_sbar", torch.zeros(()))  # 0: not frozen yet

    def _feature_rows(self, features: Tensor, shape: tuple[int, ...]) -> Tensor:
        if features.ndim == 2 and len(shape) > 1:
            raise ValueError(
                "vace with dense logits needs features per position, (B, D, *spatial): scatter is by label"
            )
        return super()._feature_rows(features, shape)

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        if self.training:
            self._update(z, target, features)
        return cross_entropy_rows(self.adjust_logits(z).log_softmax(1), target)

    @torch.no_grad()
    def _update(self, z: Tensor, target: Labels, features: Tensor | None) -> None:
        assert features is not None  # checked by the base class
        index, y = target.unmixed()
        f = features if len(index) == len(features) else features[index]
        if f.shape[1] != self.feature_dim:
            raise ValueError(f"features have {f.shape[1]} columns, but this loss was built for {self.feature_dim}")
        finite = z.sum(1).isfinite()
        if not bool(finite.all()):
            f, y = f[finite[index]], y[finite[index]]
        self.statistics.update(F.normalize(f, dim=1) if self.normalize_features else f, y)
        self.steps += 1
        if self.freeze_sbar and int(self.steps) > self.warmup_steps and float(self.frozen_sbar) == 0:
            self.frozen_sbar = self._running_sbar()[0]

    def _running_sbar(self) -> tuple[Tensor, Tensor, Tensor]:
        """sbar (0: no class has scatter), vhat, valid."""
        vhat, valid = self.statistics.unbiased()
        sbar = vhat.sum() / valid.sum().clamp(min=1)
        return torch.where(sbar < _NO_SCATTER, 0, sbar), vhat, valid

    @torch.no_grad()
    def class_temperatures(self) -> Tensor:
        sbar, vhat, valid = self._running_sbar()
        usable = (sbar > 0) & (self.steps > self.warmup_steps)
        if self.freeze_sbar:
            sbar = torch.where(self.frozen_sbar > 0, self.frozen_sbar.to(sbar.dtype), sbar)
        sbar = torch.where(sbar > 0, sbar, 1)
        r = torch.where(valid, vhat / sbar, 1) if self.rarity is None else self.rarity.to(vhat)
        if self.mode == "centered":
            tau = 1 + self.lam * (r - 1)
        elif self.b is None:
            tau = self.a + self.lam * r
        else:
            tau = self.a + self.b * r * sbar
        return torch.where(usable, tau.clamp(self.tau_min, self.tau_max), 1)

    def adjust_logits(self, z: Tensor) -> Tensor:
        z = at_least_float32(z)
        z = gauged(z, self.gauge)
        return z / self.class_temperatures().to(z.dtype).reshape(-1, *(1 for _ in z.shape[2:]))

    @torch.no_grad()
    def fold_into(self, linear: nn.Module) -> nn.Module:
        """Put tau (and the mean gauge) into the head's weights, in place: head(f) then gives adjust_logits(head(f)).

        gauge none: W' = T^-1 W; gauge mean: W' = T^-1 (I - 11'/C) W, and the same for the bias. linear: nn.Linear or a
        1x1 convolution with C outputs. Do it once, after training; returns the same module.
        """
        if self.gauge not in ("none", "mean"):
            raise ConfigError(f"gauge {self.gauge} is not linear in the logits, so it cannot be folded into the head")
        tau = self.class_temperatures()
        for name in ("weight", "bias"):
            t = getattr(linear, name, None)
            if t is None:
                continue
            if t.shape[0] != self.num_classes:
                raise ValueError(f"the head has {t.shape[0]} outputs, but the loss has {self.num_classes} classes")
            value = t.double() - t.double().mean(0) if self.gauge == "mean" else t.double()
            t.copy_(value / tau.double().reshape(-1, *(1 for _ in t.shape[1:])))
        return linear

    def diagnostics(self) -> dict[str, float | list[float]]:
        tau = self.class_temperatures().double().cpu()
        at = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=torch.float64)
        return {
            "tau_min": float(tau.min()),
            "tau_mean": float(tau.mean()),
            "tau_max": float(tau.max()),
            "tau_quantiles": tau.quantile(at).tolist(),  # 5, 25, 50, 75, 95 %
            "classes_with_scatter": float(self.statistics.unbiased()[1].float().mean()),
        }


def _mode(mode: str | None, lam: float | None, a: float | None, b: float | None) -> Mode:
    if mode == "seed":  # the name in the first description of the loss
        mode = "published"
    if mode is None:
        mode = "published" if b is None else "explicit"
    if mode not in get_args(Mode):
        raise ConfigError(f"vace has no mode {mode!r}", fix=did_you_mean(mode, get_args(Mode)))
    if mode == "explicit" and b is None:
        raise ConfigError("vace mode explicit needs b (tau = a + b * scatter)")
    if mode == "explicit" and lam is not None:
        raise ConfigError("vace: lam and b both set the spread of tau", fix="give one of them")
    if mode == "published" and b is not None:
        raise ConfigError("vace mode published sets b = lam / mean scatter itself", fix='use mode="explicit" with b')
    if mode == "centered" and (a is not None or b is not None):
        raise ConfigError("vace mode centered has no a and b, its temperatures are 1 + lam (r - 1)")
    return mode  # type: ignore[return-value]
