"""How logits and features come out of each family of timm models, and which recipe fits a network: found by trying."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from calibrant.errors import ModelError

log = logging.getLogger(__name__)

Recipe = Callable[[Any, Tensor], tuple[Tensor, Tensor]]


def _plain(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    f = m.forward_head(m.forward_features(x), pre_logits=True)
    return m.get_classifier()(f), f


def _two_heads(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """EfficientFormer, LeViT, SwiftFormer: two heads on the same features."""
    f = m.forward_head(m.forward_features(x), pre_logits=True)
    return (m.head(f) + m.head_dist(f)) / 2, f


def _two_tokens(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Distilled DeiT and PiT: a head per token; the pre-logits that timm gives are the input of neither."""
    t = m.forward_features(x)
    a, b = m.head_drop(t[:, 0]), m.head_drop(t[:, 1])
    return (m.head(a) + m.head_dist(b)) / 2, torch.cat([a, b], 1)


def _convolution(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """DPN, DLA, ResNetV2/BiT: the head is a 1 x 1 convolution."""
    f = m.forward_head(m.forward_features(x), pre_logits=True).flatten(1)
    return m.get_classifier()(f[:, :, None, None]).flatten(1), f


def _pooling_head(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Sequencer, SAM: `get_classifier` gives a head that pools as well; the linear layer is its `fc`."""
    f = m.forward_head(m.forward_features(x), pre_logits=True)
    return m.head.fc(f), f


def _head_per_branch(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """CrossViT: two branches with a head each."""
    parts = [m.head_drop(t[:, 1:].mean(1) if m.global_pool == "avg" else t[:, 0]) for t in m.forward_features(x)]
    return torch.stack([h(t) for h, t in zip(m.head, parts, strict=True)]).mean(0), torch.cat(parts, 1)


def _token_labelling(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """VOLO: the class token's logits plus half the largest logit of any patch; the features are the class token."""
    t = m.forward_features(x)
    f = m.head_drop(t[:, 0])
    return m.head(f) + 0.5 * m.aux_head(t[:, 1:]).max(1)[0], f


def _head_after_norm(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """SHViT: a batch norm between the pre-logits that timm gives and the linear layer; the features are behind it."""
    f = m.head.bn(m.forward_head(m.forward_features(x), pre_logits=True))
    return m.head.l(f), f


def _head_per_stage(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """EfficientViM: a head per stage, mixed by softmax weights; the distilled ones have such a mixture twice."""
    parts = [m.head_drop(t.mean(-1)) for t in m.forward_features(x)]

    def mixed(weights: Tensor, heads: Any) -> Tensor:
        return torch.stack([w * h(t) for w, h, t in zip(weights.softmax(-1), heads, parts, strict=True)]).sum(0)

    z = mixed(m.weights, m.heads)
    if hasattr(m, "heads_dist"):
        z = (z + mixed(m.weights_dist, m.heads_dist)) / 2
    return z, torch.cat(parts, 1)


def _linear_head(m: Any) -> tuple[nn.Module, ...]:
    return (m.get_classifier(),)


# name: (recipe, the layers whose rows are the classes)
RECIPES: dict[str, tuple[Recipe, Callable[[Any], tuple[nn.Module, ...]]]] = {
    "plain": (_plain, _linear_head),
    "two heads": (_two_heads, lambda m: (m.head, m.head_dist)),
    "two tokens": (_two_tokens, lambda m: (m.head, m.head_dist)),
    "pooling head": (_pooling_head, lambda m: (m.head.fc,)),
    "convolution": (_convolution, _linear_head),
    "head per branch": (_head_per_branch, lambda m: tuple(m.head)),
    "head after norm": (_head_after_norm, lambda m: (m.head.l,)),
    "head per stage": (_head_per_stage, lambda m: (*m.heads, *getattr(m, "heads_dist", ()))),
    "token labelling": (_token_labelling, lambda m: (m.head, m.aux_head)),
}


def find_recipe(network: Any, size: tuple[int, int]) -> tuple[str, int, int]:
    """The first recipe that reproduces the model, the feature width and the number of classes."""
    name = type(network).__name__
    missing = [a for a in ("forward_features", "forward_head", "get_classifier") if not hasattr(network, a)]
    if missing:
        raise ModelError(f"{name} has no {missing[0]}, so its features cannot be told from its head")
    parameter = next(network.parameters())
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, *size, generator=generator).to(parameter.device, parameter.dtype)
    training = network.training
    network.eval()
    try:
        with torch.no_grad(), _random_heads(network):
            try:
                expected = network(x)
            except Exception as error:  # a model raises anything from AssertionError to IndexError on a wrong size
                first = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise ModelError(f"{name} does not accept {size[0]} x {size[1]} pixels ({first})") from None
            if not isinstance(expected, Tensor) or expected.ndim != 2:
                raise ModelError(f"{name} is not a classifier: it gives no (N, classes) logits")
            for recipe, (forward, _) in RECIPES.items():
                try:
                    logits, features = forward(network, x)
                except Exception as error:  # a recipe for another family
                    log.debug("recipe %s does not fit %s: %s", recipe, name, error)
                    continue
                if logits.shape == expected.shape and features.ndim == 2 and _close(logits, expected):
                    return recipe, features.shape[1], expected.shape[1]
    finally:
        network.train(training)
    raise ModelError(
        f"{name}: no known way to take features apart from logits reproduces this model's output",
        fix="choose a model of another family, or report this one",
    )


def _close(logits: Tensor, expected: Tensor) -> bool:
    return bool(torch.allclose(logits, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()) + 1e-12))


@contextmanager
def _random_heads(network: Any) -> Iterator[None]:
    """Draws the weights of everything that looks like a head, since a head of zeros agrees with every recipe."""
    generator = torch.Generator().manual_seed(1)
    parameters = {id(p): p for layer in _head_modules(network) for p in layer.parameters()}.values()
    kept = [p.detach().clone() for p in parameters]
    try:
        for p in parameters:
            # Not a constant mean: two heads must differ, and so must their rows.
            p.copy_(torch.randn(p.shape, generator=generator).to(p) * 0.1 + (1.0 if p.ndim == 1 else 0.0))
        yield
    finally:
        for p, value in zip(parameters, kept, strict=True):
            p.copy_(value)


def _head_modules(network: Any) -> list[nn.Module]:
    classifier = network.get_classifier()
    found = list(classifier) if isinstance(classifier, tuple | list) else [classifier]
    found += [getattr(network, a, None) for a in ("head", "head_dist", "aux_head", "fc", "classifier")]
    return [m for m in found if isinstance(m, nn.Module)]
