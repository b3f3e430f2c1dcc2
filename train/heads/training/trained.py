"""A head that is done: what its logits are and which prior corrections lie in them."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from calibrant.train.heads.training.modules import Head
from calibrant.train.losses import Loss


@dataclass
class TrainedHead:
    """A head in eval mode with what its logits need: softmax(loss.adjust_logits(z)) is its probability."""

    head: Head
    loss: Loss | None  # None: closed form
    corrections: dict[str, float]  # prior corrections in the logits, by name; they add up
    history: list[float] = field(default_factory=list)  # mean training loss of each epoch

    @property
    def absorbed(self) -> float:
        return sum(self.corrections.values())

    @torch.no_grad()
    def logits(self, features: Tensor, *, batch: int = 4096) -> Tensor:
        """The head's own logits, scaled as the loss saw them and before class temperatures. (N, ...) -> (N, C)."""
        parts = [self.head(rows)[0] for rows in features.split(batch)]  # type: ignore[no-untyped-call]
        return self.scale * torch.cat(parts)

    @property
    def scale(self) -> float:
        """Scale that a loss on cosines brings (ldam, arcface); 1 for all others."""
        return own_scale(self.loss)

    def class_temperatures(self) -> Tensor | None:
        return None if self.loss is None else self.loss.class_temperatures()

    @property
    def gauge(self) -> str:
        return str(getattr(self.loss, "gauge", "none"))

    @torch.no_grad()
    def claimed(self, logits: Tensor) -> Tensor:
        """Logits whose softmax the model claims, class temperatures applied, from `logits`."""
        if self.loss is None or self.scale != 1.0:
            return logits
        return self.loss.eval().adjust_logits(logits)


def own_scale(loss: Loss | None) -> float:
    """Scale that a loss on cosines brings; 1 for all others."""
    return float(loss.scale) if loss is not None and loss.needs_cosines else 1.0  # type: ignore[arg-type]
