"""FeDLaS: label smoothing whose strength follows each sample's feature norm and a learned gate."""

from __future__ import annotations

import math
from typing import Any, Literal, Unpack, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.errors import ConfigError, did_you_mean
from calibrant.train.losses.mbls import margin_excess
from calibrant.train.losses.shared.checks import at_least, in_range
from calibrant.train.losses.shared.cpu_linear import linear
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.norm_index import NormIndex
from calibrant.train.losses.shared.rows import class_mean
from calibrant.train.losses.shared.sample_memory import SampleMemory
from calibrant.train.losses.shared.target import Labels, cross_entropy_rows

Indicator = Literal["l1", "msp", "max-logit"]

# The authors' names of the same tensors, so that their checkpoints load.
_PUBLISHED_NAMES = {"DCG.": "gate.", "NCI.": "nci."}


class Gate(nn.Module):
    """psi in {-1, 0, 1}: is the sample over- (+1) or under-confident (-1)? (N, C) -> (N,).

    Linear, LeakyReLU(.01), Linear; u = softmax(out)_1 - softmax(out)_0 = tanh((out_1 - out_0) / 2). psi = sign u going
    forward, and its gradient is passed to u as it is.
    """

    def __init__(self, num_classes: int, hidden: int) -> None:
        super().__init__()
        self.fc_in = nn.Linear(num_classes, hidden)
        self.fc_out = nn.Linear(hidden, 2)

    def forward(self, z: Tensor) -> Tensor:
        hidden = F.leaky_relu(linear(z, self.fc_in.weight, self.fc_in.bias), 0.01)
        out = linear(hidden, self.fc_out.weight, self.fc_out.bias)
        u = ((out[:, 1] - out[:, 0]) / 2).tanh()
        return u.detach().sign() + (u - u.detach())  # the bracket is 0; it carries the gradient


class _FeDLaS(Loss):
    """What both variants share: alpha_i = 2 A sigmoid(beta psi_i gamma_i), in (0, 2A).

    gamma: NormIndex of a_i = sum_j |f_ij| (features detached), psi: Gate on detached logits. alpha is the gate's only
    way to learn, so it stays attached; the logits get no gradient through it. The gate's parameters belong in the
    model's optimizer. indicator: l1, or msp / max-logit with a_i = max softmax / max logit, which need no features.
    Mixed targets: psi and gamma do not depend on labels; pass the features of the images that the logits come from.
    """

    needs_indices = True  # for the flip rate in diagnostics only; the loss is the same without
    counts: Tensor
    alpha_sum: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        alpha: float,
        beta: float,
        momentum: float,
        indicator: Indicator,
        gate_hidden: int | None,
        init: Literal["published", "first_batch"],
        single_row_nan: bool,
        **options: Unpack[BaseOptions],
    ) -> None:
        super().__init__(at_least(num_classes, 2, "num_classes"), **options)
        if not 0 <= alpha < 0.5:
            raise ConfigError(f"alpha is {alpha}, but must lie in [0, 0.5): rows are smoothed by up to 2 alpha")
        self.alpha, self.beta = float(alpha), float(beta)
        if indicator not in get_args(Indicator):
            raise ConfigError(f"no indicator {indicator!r}", fix=did_you_mean(str(indicator), get_args(Indicator)))
        if init not in ("published", "first_batch"):
            raise ConfigError(f"init {init!r} is not published or first_batch")
        self.indicator: Indicator = indicator
        self.needs_features = indicator == "l1"
        hidden = max(num_classes // 2, 1) if gate_hidden is None else at_least(gate_hidden, 1, "gate_hidden")
        self.gate = Gate(num_classes, hidden)
        self.nci = NormIndex(momentum=in_range(momentum, 0, 1, "momentum"), init=init, single_row_nan=single_row_nan)
        self.register_buffer("counts", torch.zeros(5, dtype=torch.int64))  # under, undecided, over, compared, flipped
        self.register_buffer("alpha_sum", torch.zeros((), dtype=torch.float64))  # since the last diagnostics
        self.decisions = SampleMemory(torch.int8)

    def smoothing(self, z: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """alpha, psi, gamma, (N,) each; in training the running averages move first."""
        psi = self.gate(z.detach())
        if self.indicator == "l1":
            assert features is not None  # checked by the base class
            a = features.abs().sum(1).to(z.dtype)
        else:
            a = (z.detach().softmax(1) if self.indicator == "msp" else z.detach()).amax(1)
        gamma = self.nci(a)
        return 2 * self.alpha * torch.sigmoid(self.beta * psi * gamma), psi, gamma

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        alpha, psi, _ = self.smoothing(z, features)
        if self.training:
            self._count(psi.detach(), indices)
            self.alpha_sum += alpha.detach().nan_to_num().sum().to(self.alpha_sum)
        log_p = z.log_softmax(1)
        ce = cross_entropy_rows(log_p, target)
        return ce.lerp(self.penalty(z, log_p), alpha)  # (1 - alpha) CE + alpha E

    def penalty(self, z: Tensor, log_p: Tensor) -> Tensor:
        """What replaces CE to the share alpha. (N,)."""
        raise NotImplementedError

    def _feature_rows(self, features: Tensor, shape: tuple[int, ...]) -> Tensor:
        """One vector per image beside dense logits: its norm alone is repeated, as a column of width 1."""
        if features.ndim == 2 and len(shape) > 1:
            features = features.abs().sum(1, keepdim=True)
        return super()._feature_rows(features, shape)

    @torch.no_grad()
    def _count(self, psi: Tensor, indices: Tensor | None) -> None:
        now = psi.nan_to_num().to(torch.int64)
        self.counts[:3] += torch.bincount(now + 1, minlength=3)
        if indices is not None:
            self.decisions.make_room(indices)
            before = self.decisions.values[indices]
            self.counts[3:] += torch.stack([(before != 0).sum(), ((before != 0) & (before != now)).sum()])
            self.decisions.values[indices] = now.to(torch.int8)

    def diagnostics(self) -> dict[str, float | list[float]]:
        """Since the last call: mean alpha_i (below A where the gate learned to smooth less), shares of rows that the
        gate took for over- and under-confident, and flip_rate.

        flip_rate: share of samples whose decision differs from the one at their previous visit; NaN without indices.
        """
        under, undecided, over, compared, flipped = (int(n) for n in self.counts.tolist())
        rows = under + undecided + over
        smoothed = float(self.alpha_sum)
        self.counts.zero_()
        self.alpha_sum.zero_()
        return {
            "mean_alpha": smoothed / rows if rows else math.nan,
            "overconfident_share": over / rows if rows else math.nan,
            "underconfident_share": under / rows if rows else math.nan,
            "flip_rate": flipped / compared if compared else math.nan,
            "nci_mean": float(self.nci.batch_mean),
            "nci_std": float(self.nci.batch_std),
        }

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        for theirs, ours in _PUBLISHED_NAMES.items():
            for key in [k for k in state_dict if k.startswith(prefix + theirs)]:
                state_dict[prefix + ours + key[len(prefix + theirs) :]] = state_dict.pop(key)
        own = {
            "counts": self.counts,
            "nci.updates": self.nci.updates,
            "alpha_sum": self.alpha_sum,
            "decisions.values": self.decisions.values,
        }
        if prefix + "gate.fc_in.weight" in state_dict:
            for name, value in own.items():
                state_dict.setdefault(prefix + name, value)  # the authors' and older checkpoints lack them
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class FeDLaSLS(_FeDLaS):
    """L_i = (1 - alpha_i) CE_i + alpha_i E_i, E_i = -(1/C) sum_k log p_k; alpha_i = 2A sigmoid(beta psi_i gamma_i).

    psi: a gate on the logits; gamma: the sample's feature norm against the running mean (NormIndex). A = alpha.
    theta = momentum weighs the new batch. Published settings: alpha .05, CIFAR-100 .1; theta .95, others .5.
    Differs from the paper where the authors' code does: gate sign, sgn(0) = 0, denominator sd + 1e-3.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        alpha: float = 0.05,
        beta: float = 4.0,
        momentum: float = 0.95,
        indicator: Indicator = "l1",
        gate_hidden: int | None = None,
        init: Literal["published", "first_batch"] = "published",
        single_row_nan: bool = False,
        **options: Unpack[BaseOptions],
    ) -> None:
        super().__init__(
            num_classes,
            alpha=alpha,
            beta=beta,
            momentum=momentum,
            indicator=indicator,
            gate_hidden=gate_hidden,
            init=init,
            single_row_nan=single_row_nan,
            **options,
        )

    def penalty(self, z: Tensor, log_p: Tensor) -> Tensor:
        return -class_mean(log_p)


class FeDLaSMbLS(_FeDLaS):
    """L_i = (1 - alpha_i) CE_i + alpha_i mean_k max(0, d_ik - m), d_ik = max_l z_il - z_ik; alpha_i as in FeDLaSLS.

    The row maximum is not detached. class_reduction="sum" is the paper's text, C times stronger than the authors' code.
    Published settings: alpha .1 and m 6 for CIFAR, .05 and 10 elsewhere; beta .5, CIFAR-100 1.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        alpha: float = 0.1,
        beta: float = 0.5,
        momentum: float = 0.95,
        margin: float = 6.0,
        class_reduction: Literal["mean", "sum"] = "mean",
        indicator: Indicator = "l1",
        gate_hidden: int | None = None,
        init: Literal["published", "first_batch"] = "published",
        single_row_nan: bool = False,
        **options: Unpack[BaseOptions],
    ) -> None:
        super().__init__(
            num_classes,
            alpha=alpha,
            beta=beta,
            momentum=momentum,
            indicator=indicator,
            gate_hidden=gate_hidden,
            init=init,
            single_row_nan=single_row_nan,
            **options,
        )
        self.margin = in_range(margin, 0, float("inf"), "margin")
        if class_reduction not in ("mean", "sum"):
            raise ConfigError(f"class_reduction {class_reduction!r} is not mean or sum")
        self.class_reduction = class_reduction

    def penalty(self, z: Tensor, log_p: Tensor) -> Tensor:
        excess = margin_excess(z, self.margin)
        return class_mean(excess) if self.class_reduction == "mean" else excess.sum(1)
