"""The classifiers: from features to (logits, hidden features).

linear      z = W f + b
logistic    the same, solved by L-BFGS (solve.py)
mlp         hidden layers, then linear
cosine      z = s cos(f, W_k)
arcface     z = s cos(f, W_k), a margin on the angle in training
prototype   z = cos(f, c_k) / T, the prototypes start at the class means
ncm, lda    closed form (solve.py); linear, or cosine after centring
map         attention pooling over patch tokens (one learned query), then linear

A head's last layer is `Linear`, or `Cosine`, which export folds into normalisation and one matrix.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.errors import ConfigError
from calibrant.settings.heads import Activation, HeadKind


class Transform(nn.Module):
    """sign(f) |f|^power, then (f - mean) * scale, then f / |f| where asked for; statistics of the training rows."""

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int, *, power: float = 1.0, unit: bool = False) -> None:
        super().__init__()
        self.power, self.unit = power, unit
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def fit(self, features: Tensor, *, center: bool, standardise: bool) -> None:
        """features: (N, D) or (N, T, D). A feature that never moves keeps the scale 1."""
        rows = self._powered(features).reshape(-1, features.shape[-1]).double()
        if center or standardise:
            self.mean.copy_(rows.mean(0))
        if standardise:
            deviation = rows.std(0) if len(rows) > 1 else torch.zeros(rows.shape[1])
            self.scale.copy_(torch.where(deviation > 1e-8, 1.0 / deviation.clamp(min=1e-8), torch.ones_like(deviation)))

    def _powered(self, f: Tensor) -> Tensor:
        if self.power == 1.0:
            return f
        if self.power == 0.5:  # twice as fast as the general power
            return f.sign() * f.abs().sqrt()
        return f.sign() * f.abs().pow(self.power)

    def forward(self, f: Tensor) -> Tensor:
        f = (self._powered(f) - self.mean) * self.scale
        return F.normalize(f, dim=-1) if self.unit else f


class Cosine(nn.Module):
    """z_k = s cos(f, W_k): (N, D) -> (N, C). scale=1 gives plain cosines, for losses that bring their own scale."""

    def __init__(self, width: int, classes: int, *, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(classes, width))
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)  # as nn.Linear

    def forward(self, f: Tensor) -> Tensor:
        return self.scale * F.linear(F.normalize(f, dim=-1), F.normalize(self.weight, dim=-1))


class Folded(nn.Module):
    """Cosine logits with scale and |W| in one matrix: normalise the features, then Linear."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.linear = nn.Linear(weight.shape[1], weight.shape[0])
        with torch.no_grad():
            self.linear.weight.copy_(weight)
            self.linear.bias.copy_(torch.zeros(len(weight)) if bias is None else bias)

    def forward(self, f: Tensor) -> Tensor:
        result: Tensor = self.linear(F.normalize(f, dim=-1))
        return result


class AttentionPool(nn.Module):
    """One learned query attends to the patch tokens: (N, T, D) -> (N, D).

    Multi-head attention with a residual MLP, as in the Set Transformer (Lee et al. 2019) and SigLIP's pooling.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(f"head.heads is {heads}, which does not divide the feature width {width}")
        self.heads = heads
        self.query = nn.Parameter(torch.randn(1, 1, width) * width**-0.5)
        self.norm = nn.LayerNorm(width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """With one query, its product with the key matrix is a vector per head, and values can be mapped after pooling:
        the same function as keys and values of every token at 1/100 of the arithmetic. What moves all tokens of a row
        alike (biases of the norm and of the keys) the softmax does not see, and shares sum to 1, so that scale and
        bias of the norm are applied to vectors per head as well, and nothing is differentiated token by token.
        """
        n, d, h = len(tokens), tokens.shape[-1], self.heads
        x = F.layer_norm(tokens, (d,), eps=self.norm.eps)
        key, value = self.key_value.weight.reshape(2, h, d // h, d).unbind(0)  # (heads, d/heads, d)
        asked = (self.query.reshape(h, 1, d // h) @ key).squeeze(1) * (d // h) ** -0.5  # (heads, d)
        share = (x @ (asked * self.norm.weight).T).softmax(1)  # (n, t, heads)
        seen = share.transpose(1, 2) @ x * self.norm.weight + self.norm.bias  # (n, heads, d)
        values = (seen.transpose(0, 1) @ value.transpose(1, 2)).transpose(0, 1).reshape(n, d)
        pooled: Tensor = self.out(values + self.key_value.bias[d:])
        result: Tensor = pooled + self.mlp(pooled)
        return result


class Head(nn.Module):
    """forward(features) -> (logits (N, C), hidden (N, H)); hidden is what the last layer reads.

    transform -> body -> classifier. The transform is fitted once and not trained, so it can be applied to the whole
    matrix before training: `after_transform` takes features that it was applied to.
    """

    def __init__(self, transform: Transform, body: nn.Module, classifier: nn.Module, *, hidden: int) -> None:
        super().__init__()
        self.transform, self.body, self.classifier, self.hidden = transform, body, classifier, hidden

    def after_transform(self, f: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(f)
        return self.classifier(h), h

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.after_transform(self.transform(features))


_ACTIVATIONS: dict[Activation, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "gelu_ln": nn.GELU}


def make_body(config: HeadKind, width: int) -> tuple[nn.Module, int]:
    """What comes before the last layer, and the width of what it gives."""
    if config.kind == "map":
        return AttentionPool(width, config.heads), width
    if config.kind != "mlp":
        return nn.Identity(), width
    layers: list[nn.Module] = []
    for size in config.hidden:
        layers.append(nn.Linear(width, size))
        if config.activation == "gelu_ln":
            layers.append(nn.LayerNorm(size))
        layers.append(_ACTIVATIONS[config.activation]())
        if config.dropout:
            layers.append(nn.Dropout(config.dropout))
        width = size
    return nn.Sequential(*layers), width


def make_classifier(config: HeadKind, width: int, classes: int, *, cosines: bool) -> nn.Module:
    """`cosines`: the loss wants plain cosines and brings its own scale (ldam, arcface)."""
    if cosines or config.kind == "arcface":
        return Cosine(width, classes, scale=1.0)
    if config.kind == "cosine":
        return Cosine(width, classes, scale=config.scale)
    if config.kind == "prototype":
        return Cosine(width, classes, scale=1.0 / config.temperature)
    return nn.Linear(width, classes)


def folded(classifier: nn.Module, scale: float = 1.0) -> nn.Module:
    """The classifier as it is deployed: one Linear, after normalisation where it was cosine. `scale`: of the logits."""
    with torch.no_grad():
        if isinstance(classifier, Cosine):
            return Folded(scale * classifier.scale * F.normalize(classifier.weight, dim=-1))
        linear = classifier.linear if isinstance(classifier, Folded) else classifier
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"cannot fold {type(classifier).__name__}")
        if scale == 1.0:
            return classifier
        if isinstance(classifier, Folded):
            return Folded(scale * linear.weight, scale * linear.bias)
        scaled = nn.Linear(linear.in_features, linear.out_features)
        scaled.weight.copy_(scale * linear.weight)
        scaled.bias.copy_(scale * linear.bias)
        return scaled


def last_linear(classifier: nn.Module) -> nn.Linear:
    """The one matrix that a folded classifier ends in."""
    layer = classifier.linear if isinstance(classifier, Folded) else classifier
    if not isinstance(layer, nn.Linear):
        raise TypeError(f"{type(classifier).__name__} does not end in a matrix" + " yet" * isinstance(layer, Cosine))
    return layer
