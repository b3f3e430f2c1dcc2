"""What the rows of a training matrix are where images stand in it more than once, or two in one row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calibrant.errors import ConfigError
from calibrant.settings.heads import TRAINED, HeadConfig


@dataclass(frozen=True)
class RowViews:
    """image (N,): of which image a row is. Of views that mix two: the label of the second, and the first's share."""

    image: Tensor
    other: Tensor | None = None  # (N,) int64
    share: Tensor | None = None  # (N,) in [0, 1]; 1 where nothing is mixed

    def to(self, device: str | torch.device) -> RowViews:
        parts = (None if t is None else t.to(device) for t in (self.other, self.share))
        return RowViews(self.image.to(device), *parts)

    def mass(self, labels: Tensor, classes: int) -> Tensor:
        """(C,) what the labels sum to, both of a mixture by their shares."""
        if self.share is None or self.other is None:
            return torch.bincount(labels, minlength=classes).double()
        share = self.share.double()
        first = torch.bincount(labels, share, minlength=classes)
        return first + torch.bincount(self.other, 1 - share, minlength=classes)


class Twins:
    """For each row another unmixed row of the same image, drawn anew each time."""

    def __init__(self, views: RowViews) -> None:
        unmixed = torch.ones_like(views.image, dtype=torch.bool) if views.share is None else views.share == 1
        rows = unmixed.nonzero()[:, 0]
        self._sorted = rows[views.image[rows].argsort(stable=True)]
        of = views.image[self._sorted]
        _, place, sizes = of.unique_consecutive(return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
        starts = sizes.cumsum(0) - sizes
        self._start = torch.zeros_like(views.image)
        self._size, self._at = self._start.clone(), self._start.clone()
        self._start[self._sorted], self._size[self._sorted] = starts[place], sizes[place]
        self._at[self._sorted] = torch.arange(len(rows), device=rows.device) - starts[place]
        if not bool((self._size > 1).any()):
            raise ConfigError(
                "no image has two unmixed views to agree on",
                where="augment.consistency",
                fix='name two in data.train_views, such as ["eval","crop1"]',
            )

    def draw(self, rows: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Those of `rows` that have a twin, and their twins."""
        u = torch.rand(len(rows), generator=rng).to(rows.device)
        have = self._size[rows] > 1
        rows, u = rows[have], u[have]
        size = self._size[rows]
        step = 1 + (u * (size - 1)).long()
        return rows, self._sorted[self._start[rows] + (self._at[rows] + step) % size]


def disagreement(z: Tensor, w: Tensor) -> Tensor:
    """Mean over rows of (KL(p, q) + KL(q, p)) / 2, p = softmax(z), q = softmax(w): R-Drop's term (Liang et al. 2021).

    Differs: between two views of an image, where R-Drop compares two drop-out masks of one.
    """
    log_p, log_q = z.log_softmax(1), w.log_softmax(1)
    rows: Tensor = 0.5 * ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(1)
    return rows.mean()


def refuse_mixed_rows(config: HeadConfig) -> None:
    """Heads and terms that know no row of two classes."""
    where = "data.train_views"
    if config.head.kind not in TRAINED:
        raise ConfigError(f"a {config.head.kind} head takes no mixed views", where=where, fix="use unmixed ones")
    for name, on in (
        ("augment.mixup", config.augment.mixup > 0), ("augment.smote", config.augment.smote > 0),
        ("augment.head_tail", config.augment.head_tail > 0), ("auxiliary.name", config.auxiliary.name != "none"),
        ("loss.name = vace", config.loss.name == "vace"), ("crt.epochs", config.crt.epochs > 0),
    ):  # fmt: skip
        if on:
            raise ConfigError(f"{name} takes rows of one class, not mixed views", where=where, fix="set one of the two")
