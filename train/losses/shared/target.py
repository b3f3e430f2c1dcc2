"""What rows should become: hard labels, two labels and their shares, or probabilities; flattened and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from calibrant.errors import DataError
from calibrant.train.losses.shared.gather import gather_rows
from calibrant.train.losses.shared.rows import rows_last, take


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
        """Indices of rows that belong to one class only and their labels: two images of one class mixed do, too."""
        if self.mixed is not None:
            y1, y2, lam = self.mixed
            index = ((lam == 1) | (lam == 0) | (y1 == y2)).nonzero()[:, 0]
            return index, torch.where(lam[index] == 0, y2[index], y1[index])
        return self.unmixed()

    def unmixed(self) -> tuple[Tensor, Tensor]:
        """Indices of rows that are one image, as far as the target tells, and their labels.

        What is kept of single images, or of how they scatter, takes these: a mixture of two lies nearer to the mean.
        """
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


def cross_entropy_rows(log_p: Tensor, target: Labels) -> Tensor:
    """CE_i = -log p_{i, y_i}, or -sum_k q_ik log p_ik for soft targets. log_p: (N, C)."""
    return target.elementwise(torch.neg, log_p)


def single_class(target: Labels, name: str) -> Tensor:
    """Hard labels, which a contrastive loss needs."""
    if target.hard is None:
        raise ValueError(f"{name} contrasts classes and needs hard labels, not mixed ones")
    return target.hard


@dataclass(frozen=True)
class Classes:
    """Which labels there are: 0 .. count - 1, and `ignored` for rows to be skipped. loss: whose they are."""

    count: int
    ignored: int
    loss: str

    def flat(
        self, target: Tensor | MixedTarget, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> tuple[Labels, Tensor | None]:
        """Flat labels of the kept rows, and the mask of kept rows (None: all)."""
        if isinstance(target, MixedTarget):
            y1, y2 = target.y1.reshape(-1), target.y2.reshape(-1)
            lam = torch.as_tensor(target.lam, dtype=dtype, device=y1.device)
            lam = lam.reshape(-1, *(1 for _ in shape[1:])).expand(shape).reshape(-1)
            keep = _unless_all((y1 != self.ignored) & (y2 != self.ignored))
            if keep is not None:
                y1, y2, lam = y1[keep], y2[keep], lam[keep]
            self._refuse_out_of_range(y1)
            self._refuse_out_of_range(y2)
            return Labels(mixed=(y1.long(), y2.long(), lam)), keep
        if target.is_floating_point():
            q = rows_last(target).to(dtype)
            keep = _unless_all((q != 0).any(1))
            return Labels(dense=q if keep is None else q[keep]), keep
        y = target.reshape(-1)
        keep = _unless_all(y != self.ignored)
        y = y if keep is None else y[keep]
        self._refuse_out_of_range(y)
        return Labels(hard=y.long()), keep

    def _refuse_out_of_range(self, y: Tensor) -> None:
        if not len(y):
            return
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= self.count:
            raise DataError(
                f"label {low if low < 0 else high} does not exist, there are {self.count} classes",
                where=self.loss,
                fix=f"labels run from 0 to {self.count - 1}; rows to be skipped carry {self.ignored}",
            )


def _unless_all(keep: Tensor) -> Tensor | None:
    return None if bool(keep.all()) else keep


def refuse_other_shape(target: Tensor | MixedTarget, logits: Tensor) -> None:
    """A target that does not fit logits (B, C, ...)."""
    soft = isinstance(target, Tensor) and target.is_floating_point()
    expected = tuple(logits.shape) if soft else (logits.shape[0], *logits.shape[2:])
    for part in (target.y1, target.y2) if isinstance(target, MixedTarget) else (target,):
        if tuple(part.shape) != expected:
            raise ValueError(f"target has shape {tuple(part.shape)}, which does not fit logits {tuple(logits.shape)}")


def gather_target(target: Tensor | MixedTarget, rows: int) -> Tensor | MixedTarget:
    """The target of all processes in rank order; `rows`: of this one."""
    if not isinstance(target, MixedTarget):
        return gather_rows(target)
    lam = torch.as_tensor(target.lam, dtype=torch.float64, device=target.y1.device).expand(rows)
    return MixedTarget(gather_rows(target.y1), gather_rows(target.y2), gather_rows(lam))
