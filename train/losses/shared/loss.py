"""The base class of all losses: shapes, ignored rows, precision, reduction and several processes.

A subclass implements `rows(z, target, features) -> (N,)` on clean input: z is (N, C) float32 or float64 with every
ignored row gone, spatial positions already flattened into rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypedDict, Unpack

import torch
from torch import Tensor, nn

from calibrant.errors import ConfigError
from calibrant.train.losses.shared.checks import at_least, refuse_non_finite
from calibrant.train.losses.shared.gather import gather_rows, world_size
from calibrant.train.losses.shared.rows import at_least_float32, rows_last
from calibrant.train.losses.shared.target import Classes, Labels, MixedTarget, gather_target, refuse_other_shape

Reduction = Literal["none", "mean", "sum"]


class BaseOptions(TypedDict, total=False):
    """Options that every loss has."""

    reduction: Reduction
    ignore_index: int
    gather: bool
    debug: bool
    keep_hardest: float
    keep_after: int


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
            logits, target = gather_rows(logits), gather_target(target, len(logits))
            features = None if features is None else gather_rows(features)
            indices = None if indices is None else gather_rows(indices)
        shape = (logits.shape[0], *logits.shape[2:])
        z = rows_last(at_least_float32(logits))
        known = Classes(self.num_classes, self.ignore_index, type(self).__name__)
        labels, keep = known.flat(target, z.dtype, shape)
        f = None if features is None else self._feature_rows(at_least_float32(features), shape)
        if len(shape) > 1:
            indices = None  # sample numbers belong to images, not to positions
        if keep is not None:
            z = z[keep]
            f = None if f is None else f[keep]
            indices = None if indices is None else indices[keep]
        if self.debug:
            refuse_non_finite(z, f)
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
        refuse_other_shape(target, logits)
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
        return rows_last(features)

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
