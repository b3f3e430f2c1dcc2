"""What all losses share: shapes, ignored rows, precision, reduction, soft targets and several processes.

A subclass implements `rows(z, target, features) -> (N,)` on clean input: z is (N, C) float32 or float64 with every
ignored row gone, spatial positions already flattened into rows.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

import torch
from torch import Tensor, nn

from calibrant.errors import ConfigError, DataError
from calibrant.train.losses.gather import gather_rows, world_size

logger = logging.getLogger(__name__)

Reduction = Literal["none", "mean", "sum"]


class BaseOptions(TypedDict, total=False):
    """Options that every loss has."""

    reduction: Reduction
    ignore_index: int
    gather: bool
    debug: bool
    keep_hardest: float
    keep_after: int


@dataclass(frozen=True)
class MixedTarget:
    """Two hard labels for every row and the share of the first: what mixup and cutmix make. lam: a number or (B,)."""

    y1: Tensor
    y2: Tensor
    lam: float | Tensor


@dataclass(frozen=True)
class Labels:
    """The target of N clean rows: `hard` (N,), or `mixed`, or `dense` (N, C) probabilities. Exactly one is set."""

    hard: Tensor | None = None
    mixed: tuple[Tensor, Tensor, Tensor] | None = None  # y1 (N,), y2 (N,), lam (N,)
    dense: Tensor | None = None

    def elementwise(self, fn: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
        """Convex combination over the target of fn(values), where values (N, C) holds one number per possible class."""
        if self.dense is not None:
            return (self.dense * fn(values)).sum(1)
        return self._two(lambda y: fn(take(values, y)))

    def convex(self, rows: Callable[[Tensor, Tensor], Tensor], z: Tensor) -> Tensor:
        """Convex combination over the target of rows(z, y), a row loss of hard labels: lam L(y1) + (1-lam) L(y2)."""
        if self.dense is None:
            return self._two(lambda y: rows(z, y))
        i, k = self.dense.nonzero(as_tuple=True)
        return z.new_zeros(len(z)).index_add(0, i, self.dense[i, k] * rows(z[i], k))

    def _two(self, rows: Callable[[Tensor], Tensor]) -> Tensor:
        if self.hard is not None:
            return rows(self.hard)
        assert self.mixed is not None  # for the type checker: one of the three is always set
        y1, y2, lam = self.mixed
        first = rows(y1)
        lam = lam.reshape(-1, *(1 for _ in first.shape[1:]))
        return lam * first + (1 - lam) * rows(y2)

    def mass(self, num_classes: int, dtype: torch.dtype) -> Tensor:
        """(N, C) target probabilities, whatever the form."""
        if self.dense is not None:
            return self.dense.to(dtype)

        def one_hot(y: Tensor) -> Tensor:
            return torch.zeros(len(y), num_classes, dtype=dtype, device=y.device).scatter_(1, y[:, None], 1.0)

        return self._two(one_hot)

    def mass_at(self, classes: Tensor, dtype: torch.dtype) -> Tensor:
        """(N,) target probability of one class per row: 1 or 0 for hard labels."""
        if self.dense is not None:
            return take(self.dense, classes).to(dtype)
        return self._two(lambda y: (y == classes).to(dtype))

    def at(self, index: Tensor) -> Labels:
        """The target of some of the rows."""
        mixed = None
        if self.mixed is not None:
            y1, y2, lam = self.mixed
            mixed = y1[index], y2[index], lam[index]
        return Labels(
            None if self.hard is None else self.hard[index], mixed, None if self.dense is None else self.dense[index]
        )

    def pure(self) -> tuple[Tensor, Tensor]:
        """Indices of rows that belong to one class only and their labels (statistics by class use no others)."""
        if self.hard is not None:
            return torch.arange(len(self.hard), device=self.hard.device), self.hard
        if self.mixed is not None:
            y1, y2, lam = self.mixed
            index = ((lam == 1) | (lam == 0)).nonzero()[:, 0]
            return index, torch.where(lam[index] == 1, y1[index], y2[index])
        assert self.dense is not None
        top, y = self.dense.max(1)
        index = (top == 1).nonzero()[:, 0]
        return index, y[index]


def take(values: Tensor, y: Tensor) -> Tensor:
    """values[i, y_i]: (N, C), (N,) -> (N,)."""
    return values.gather(1, y[:, None]).squeeze(1)


def cross_entropy_rows(log_p: Tensor, target: Labels) -> Tensor:
    """CE_i = -log p_{i, y_i}, or -sum_k q_ik log p_ik for soft targets. log_p: (N, C)."""
    return target.elementwise(torch.neg, log_p)


def class_mean(values: Tensor) -> Tensor:
    """Mean over classes, (N, C) -> (N,). Unlike .mean(1) its gradient divides N numbers and not N C."""
    return values.sum(1) / values.shape[1]


class Loss(nn.Module):
    """Base class. `loss(logits, target, features=None) -> scalar`.

    logits: (B, C) or (B, C, *spatial); target: int (B, *spatial), probabilities shaped like logits, or MixedTarget;
    features: (B, D), or (B, D, *spatial) beside dense logits.
    Rows whose target is `ignore_index` (or an all-zero soft target) vanish before every term and statistic. With no row
    left the loss is 0 and backward still works. Mean divides by the number of kept rows. Half precision is cast
    to float32 and autocast is off inside. With several processes in training the rows of all are gathered (see
    gather.py); reduction "none" then returns the rows of all processes in rank order.
    """

    needs_features: bool = False
    features_carry_gradient: bool = False  # False: features are detached on entry
    needs_indices: bool = False  # True: pass `indices=`, the sample numbers in the training set
    needs_cosines: bool = False  # True: logits must be cosines, as CosineHead gives them
    trains_classifier: bool = True  # False: an auxiliary term that says nothing about the logits

    def __init__(self, num_classes: int, **options: Unpack[BaseOptions]) -> None:
        super().__init__()
        unknown = set(options) - set(BaseOptions.__annotations__)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no option {sorted(unknown)}")
        self.num_classes = at_least(num_classes, 1, "num_classes")
        self.reduction: Reduction = options.get("reduction", "mean")
        if self.reduction not in ("none", "mean", "sum"):
            raise ConfigError(f"reduction {self.reduction!r} is not none, mean or sum", where=type(self).__name__)
        self.ignore_index = options.get("ignore_index", -100)
        self.gather = options.get("gather", True)
        self.debug = options.get("debug", False)
        self.keep_hardest = options.get("keep_hardest", 1.0)
        self.keep_after = at_least(options.get("keep_after", 1), 0, "keep_after")
        if not 0 < self.keep_hardest <= 1:
            raise ConfigError(f"keep_hardest is {self.keep_hardest}, but must lie in (0, 1]", where=type(self).__name__)
        if self.keep_hardest < 1 and self.reduction == "none":
            raise ConfigError("keep_hardest chooses rows to average or sum, but reduction is none")
        self._epoch: int | None = None

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        """Row losses (N,) whose mean is the loss. z: (N, C), N >= 1."""
        raise NotImplementedError

    def reduce(self, rows: Tensor, target: Labels) -> Tensor:
        """mean or sum of the row losses; weighted losses replace it."""
        return rows.mean() if self.reduction == "mean" else rows.sum()

    def forward(
        self,
        logits: Tensor,
        target: Tensor | MixedTarget,
        features: Tensor | None = None,
        indices: Tensor | None = None,
    ) -> Tensor:
        if torch.is_autocast_enabled(logits.device.type):
            with torch.autocast(logits.device.type, enabled=False):
                return self._forward(logits, target, features, indices)
        return self._forward(logits, target, features, indices)

    def _forward(
        self, logits: Tensor, target: Tensor | MixedTarget, features: Tensor | None, indices: Tensor | None
    ) -> Tensor:
        features = self._check(logits, target, features)
        if self.gather and self.training and world_size() > 1:
            logits, target = gather_rows(logits), _gather_target(target, len(logits))
            features = None if features is None else gather_rows(features)
            indices = None if indices is None else gather_rows(indices)
        shape = (logits.shape[0], *logits.shape[2:])
        z = _rows_last(at_least_float32(logits))
        labels, keep = self._labels(target, z.dtype, shape)
        f = None if features is None else self._feature_rows(at_least_float32(features), shape)
        if len(shape) > 1:
            indices = None  # sample numbers belong to images, not to positions
        if keep is not None:
            z = z[keep]
            f = None if f is None else f[keep]
            indices = None if indices is None else indices[keep]
        if self.debug:
            _refuse_non_finite(z, f)
        if len(z) == 0:
            return self._nothing(z, shape)
        rows = self.rows(z, labels, f, indices)
        if self.reduction != "none":
            return self.reduce(*self._hardest(rows, labels))
        if keep is not None:
            rows = rows.new_zeros(keep.shape).index_put((keep,), rows)
        return rows.reshape(shape)

    def _hardest(self, rows: Tensor, labels: Labels) -> tuple[Tensor, Labels]:
        """The ceil(q N) rows with the largest loss, q = keep_hardest, in training and after `keep_after` epochs.

        A loop that never calls on_epoch_start has no epochs to wait for. Batch statistics have seen all rows by then.
        """
        early = self._epoch is not None and self._epoch < self.keep_after
        if self.keep_hardest == 1 or not self.training or early:
            return rows, labels
        kept = rows.detach().topk(math.ceil(self.keep_hardest * len(rows))).indices
        return rows[kept], labels.at(kept)

    def _check(self, logits: Tensor, target: Tensor | MixedTarget, features: Tensor | None) -> Tensor | None:
        """Refuse shapes that cannot be meant; give the features that this loss uses."""
        if logits.ndim < 2 or logits.shape[1] != self.num_classes:
            raise ValueError(f"logits have shape {tuple(logits.shape)}, expected (B, {self.num_classes}, ...)")
        expected = (logits.shape[0], *logits.shape[2:])
        soft = isinstance(target, Tensor) and target.is_floating_point()
        for part in (target.y1, target.y2) if isinstance(target, MixedTarget) else (target,):
            if tuple(part.shape) != (tuple(logits.shape) if soft else expected):
                raise ValueError(
                    f"target has shape {tuple(part.shape)}, which does not fit logits {tuple(logits.shape)}"
                )
        if not self.needs_features:
            return None
        if features is None:
            raise ValueError(f"{type(self).__name__} needs features: call loss(logits, target, features)")
        if len(features) != len(logits) or (features.ndim != 2 and features.shape[2:] != logits.shape[2:]):
            raise ValueError(f"features have shape {tuple(features.shape)}, expected ({len(logits)}, D)")
        return features if self.features_carry_gradient else features.detach()

    def _feature_rows(self, features: Tensor, shape: tuple[int, ...]) -> Tensor:
        """(N, D), before ignored rows go. One vector for a whole image beside dense logits counts at every position."""
        if features.ndim == 2 and len(shape) > 1:
            features = features.reshape(*features.shape, *(1 for _ in shape[1:])).expand(*features.shape, *shape[1:])
        return _rows_last(features)

    def _labels(
        self, target: Tensor | MixedTarget, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> tuple[Labels, Tensor | None]:
        """Flat labels of the kept rows, and the mask of kept rows (None: all)."""
        if isinstance(target, MixedTarget):
            y1, y2 = target.y1.reshape(-1), target.y2.reshape(-1)
            lam = torch.as_tensor(target.lam, dtype=dtype, device=y1.device)
            lam = lam.reshape(-1, *(1 for _ in shape[1:])).expand(shape).reshape(-1)
            keep = self._kept((y1 != self.ignore_index) & (y2 != self.ignore_index))
            if keep is not None:
                y1, y2, lam = y1[keep], y2[keep], lam[keep]
            self._refuse_out_of_range(y1)
            self._refuse_out_of_range(y2)
            return Labels(mixed=(y1.long(), y2.long(), lam)), keep
        if target.is_floating_point():
            q = _rows_last(target).to(dtype)
            keep = self._kept((q != 0).any(1))
            return Labels(dense=q if keep is None else q[keep]), keep
        y = target.reshape(-1)
        keep = self._kept(y != self.ignore_index)
        y = y if keep is None else y[keep]
        self._refuse_out_of_range(y)
        return Labels(hard=y.long()), keep

    def _kept(self, keep: Tensor) -> Tensor | None:
        return None if bool(keep.all()) else keep

    def _refuse_out_of_range(self, y: Tensor) -> None:
        if not len(y):
            return
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= self.num_classes:
            raise DataError(
                f"label {low if low < 0 else high} does not exist, there are {self.num_classes} classes",
                where=type(self).__name__,
                fix=f"labels run from 0 to {self.num_classes - 1}; rows to be skipped carry {self.ignore_index}",
            )

    def _nothing(self, z: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Zero that depends on the logits and on the own parameters; no state is touched."""
        zero = z.sum()
        for p in self.parameters():
            zero = zero + 0 * p.sum()
        return zero if self.reduction != "none" else zero.expand(shape)

    # What a trainer, an exporter or a person asks of a loss. The answers below fit a loss without state.

    @property
    def absorbed_prior_strength(self) -> float:
        """How much of the training prior the raw logits have already lost: 0 none, 1 all (Bayes). See prior.py."""
        return 0.0

    def adjust_logits(self, z: Tensor) -> Tensor:
        """The logits whose softmax is the model's probability. z: (B, C, ...)."""
        return z

    def class_temperatures(self) -> Tensor | None:
        """tau (C,) that divides the logits, now and at inference; None where the loss has none."""
        return None

    def diagnostics(self) -> dict[str, float | list[float]]:
        """Numbers worth a line per epoch; counters start anew after the call."""
        return {}

    def on_epoch_start(self, epoch: int, total_epochs: int) -> None:
        """Call before epoch `epoch` (from 0) of `total_epochs`."""
        self._epoch = epoch

    def on_validation(self, probs: Tensor, labels: Tensor) -> None:
        """Call after each epoch with all validation rows, the same on every process. probs: (N, C), labels: (N,)."""

    def on_epoch_end(self, epoch: int, total_epochs: int) -> None:
        """Call after the last step of an epoch."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Loss:
        """As nn.Module, but .half() and .bfloat16() leave state and parameters in float32: sums over steps need it."""

        def keep_precision(t: Tensor) -> Tensor:
            try:
                moved = fn(t)
            except TypeError:  # Apple's MPS has no float64
                return fn(t.float())
            if t.is_floating_point() and moved.dtype in (torch.float16, torch.bfloat16):
                return t.to(moved.device)
            return moved

        super()._apply(keep_precision, recurse)  # type: ignore[no-untyped-call]
        return self


def at_least_float32(t: Tensor) -> Tensor:
    return t if t.dtype in (torch.float32, torch.float64) else t.float()


def at_least(value: int, low: int, name: str) -> int:
    if value < low:
        raise ConfigError(f"{name} is {value}, but must be at least {low}")
    return value


def in_range(value: float, low: float, high: float, name: str) -> float:
    """value, refused unless low <= value <= high."""
    if not low <= value <= high:
        raise ConfigError(f"{name} is {value}, but must lie in [{low}, {high}]")
    return float(value)


def _rows_last(t: Tensor) -> Tensor:
    """(B, K, *spatial) -> (B * prod(spatial), K)."""
    return t if t.ndim == 2 else t.movedim(1, -1).reshape(-1, t.shape[1])


def _gather_target(target: Tensor | MixedTarget, rows: int) -> Tensor | MixedTarget:
    if not isinstance(target, MixedTarget):
        return gather_rows(target)
    lam = torch.as_tensor(target.lam, dtype=torch.float64, device=target.y1.device).expand(rows)
    return MixedTarget(gather_rows(target.y1), gather_rows(target.y2), gather_rows(lam))


def _refuse_non_finite(z: Tensor, features: Tensor | None) -> None:
    for name, t in (("logits", z), ("features", features)):
        if t is not None and not bool(torch.isfinite(t).all()):
            bad = (~torch.isfinite(t).all(1)).nonzero()[:5, 0].tolist()
            raise DataError(f"{name} are not finite in rows {bad} of the batch", where="loss in debug mode")
