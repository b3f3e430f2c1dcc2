"""A second loss on the hidden features of a head: contrastive ones behind a projection head, centres and prototypes."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from calibrant.errors import ConfigError
from calibrant.settings.heads import AuxiliaryConfig
from calibrant.train.losses import Loss, create_loss

_PROJECTED = ("supcon", "balanced-contrastive", "weighted-supcon")


class AuxiliaryTerm(nn.Module):
    """weight * L_aux(projection(h), y). h: (B, H) hidden features of unmixed rows, y: hard labels."""

    def __init__(self, config: AuxiliaryConfig, *, hidden: int, counts: Tensor) -> None:
        super().__init__()
        self.weight = config.weight
        classes = len(counts)
        self.projection: nn.Module = nn.Identity()
        width = hidden
        if config.name in _PROJECTED and config.projection:
            self.projection = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, config.projection))
            width = config.projection
        elif config.name not in _PROJECTED and config.projection != AuxiliaryConfig().projection:
            raise ConfigError(f"auxiliary.projection is not used by {config.name}", fix="leave it out")
        self.weighted = config.name == "weighted-supcon"
        name = "supcon" if self.weighted else config.name
        options = dict(config.options) | ({"reduction": "none"} if self.weighted else {})
        if config.temperature is not None:
            options["temperature"] = config.temperature
        self.loss: Loss = create_loss(name, num_classes=classes, feature_dim=width, class_counts=counts, **options)
        # Anchors of a rare class are rarer still in a batch: weight 1/n_c makes classes, not rows, count alike.
        weights = torch.where(counts > 0, 1.0 / counts.clamp(min=1), 0.0)
        self.register_buffer("anchor_weights", weights.float())

    def forward(self, logits: Tensor, y: Tensor, hidden: Tensor) -> Tensor:
        rows: Tensor = self.loss(logits, y, self.projection(hidden))
        if self.weighted:
            w = cast(Tensor, self.anchor_weights)[y] * (rows.detach() > 0)
            rows = (w * rows).sum() / w.sum().clamp(min=1e-12)
        return self.weight * rows
