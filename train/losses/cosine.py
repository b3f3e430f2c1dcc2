"""The classifier that margin losses on angles need."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.train.losses.shared.rows import at_least_float32


class CosineHead(nn.Module):
    """z_k = cos(f, W_k), in [-1, 1]: rows of both sides L2-normalised, no bias. f: (B, D) -> (B, C).

    LDAM and ArcFace take its output as logits, so the weight is part of the model and is trained, averaged and exported
    with it. The scale belongs to the loss: probabilities are softmax(loss.adjust_logits(z)).
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.xavier_normal_(self.weight)

    def forward(self, features: Tensor) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):  # an fp16 norm of 2048 features may overflow
            f, w = at_least_float32(features), at_least_float32(self.weight)
            return F.linear(F.normalize(f, dim=1), F.normalize(w, dim=1).to(f.dtype))
