"""Any timm classifier as a network that returns logits and the features they are a function of.

Most timm models obey `get_classifier()(forward_head(forward_features(x), pre_logits=True)) == model(x)`. The others
(two heads, a convolution as head, a token per head ...) have a recipe each. Which one fits is found by trying, on a
random input and with random head weights, and a model that no recipe reproduces is refused: losses that read features
and the fold of temperatures into the head are both wrong if features and logits do not belong together.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from calibrant.errors import ModelError, did_you_mean

if TYPE_CHECKING:
    from calibrant.train.vit import TokenReduction

logger = logging.getLogger(__name__)

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
_RECIPES: dict[str, tuple[Recipe, Callable[[Any], tuple[nn.Module, ...]]]] = {
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


class _Behind:
    """A network whose input is its own feature map already."""

    def __init__(self, network: Any) -> None:
        self._network = network

    def forward_features(self, maps: Any) -> Any:
        return maps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)


class FeatureModel(nn.Module):
    """forward(x) -> (logits (N, C), features (N, D)) for a timm classifier; x: float NCHW, normalised.

    In training mode the features are what the head sees, after head dropout where the model has any (`drop_rate`), so
    statistics of features want drop_rate 0.
    """

    def __init__(self, network: nn.Module, *, input_size: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.network = network
        self.input_size = input_size or _input_size(network)
        self.recipe, self.feature_dim, self.num_classes = _find_recipe(network, self.input_size)
        self._forward, self._layers = _RECIPES[self.recipe]
        self.frozen = False  # the backbone stays in eval mode

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._forward(self.network, x)

    def logits_of(self, maps: Tensor) -> Tensor:
        """Logits (N, C) of feature maps as `network.forward_features` gives them: what the model does behind it."""
        return self._forward(_Behind(self.network), maps)[0]

    def train(self, mode: bool = True) -> FeatureModel:
        super().train(mode)
        if mode and self.frozen:
            self.network.eval()
            for layer in self.classifier_layers():
                layer.train()
        return self

    def classifier_layers(self) -> tuple[nn.Module, ...]:
        """The layers whose output rows are the classes.

        One linear map (or 1 x 1 convolution) for most; several whose outputs are averaged ("two heads", "two tokens",
        "head per branch") or mixed by weights ("head per stage"); for "token labelling" the second one passes a maximum
        over tokens and counts half.
        """
        return self._layers(self.network)

    def use_cosine_head(self) -> None:
        """Replace the linear classifier by one that gives cos(f, W_k), in [-1, 1]."""
        from calibrant.train.losses.cosine import CosineHead

        layers = self.classifier_layers()
        if self.recipe not in ("plain", "pooling head") or not isinstance(layers[0], nn.Linear):
            raise ModelError(
                f"{type(self.network).__name__} has a {self.recipe} classifier, which cannot become a cosine one",
                fix="choose another loss or a model with one linear classifier",
            )
        head = CosineHead(layers[0].in_features, layers[0].out_features).to(layers[0].weight)
        for parent in self.network.modules():
            for name, child in parent.named_children():
                if child is layers[0]:
                    setattr(parent, name, head)


def build_model(
    name: str,
    num_classes: int,
    *,
    pretrained: bool = False,
    weights: str | Path | None = None,
    input_size: tuple[int, int] | None = None,
    token_reduction: TokenReduction | None = None,
    cosine_head: bool = False,
    small_stem: bool = False,
    **options: Any,
) -> FeatureModel:
    """The timm model `name` with a new head for `num_classes`, proven to give features.

    `weights`: a local checkpoint whose head may have another number of classes. `cosine_head`: logits are cosines, for
    losses on angles. `small_stem`: see `use_small_stem`. `options` go to timm's constructor.
    """
    import timm

    if not timm.is_model(name):
        raise ModelError(f'timm has no model "{name}"', fix=did_you_mean(name, timm.list_models()))
    if weights is not None:
        if not Path(weights).is_file():
            raise ModelError("no such weights file", where=weights)
        options = {**options, "pretrained_cfg_overlay": {"file": str(weights)}}
        pretrained = True
    elif pretrained:
        _require_reachable_weights(name)
    drawn = torch.get_rng_state()
    try:
        network = _create(name, input_size, pretrained=pretrained, num_classes=num_classes, **options)
    except TypeError as error:
        raise ModelError(f"{name} does not take these options ({error})", where="model.options") from None
    except RuntimeError as error:
        first, *rest = str(error).strip().splitlines()
        if weights is not None and "loading state_dict" in first:
            detail = f" ({rest[0].strip()[:100]} ...)" if rest else ""
            raise ModelError(
                f"does not hold the weights of {name}{detail}", where=weights, fix="name the model that they belong to"
            ) from None
        raise ModelError(f"{name} cannot be built: {first}", where=weights or "model") from None
    if weights is not None:
        bare = {k: v for k, v in options.items() if k != "pretrained_cfg_overlay"}
        _require_loaded(
            network, lambda: _create(name, input_size, num_classes=num_classes, **bare), drawn, name, weights
        )
    if small_stem:
        use_small_stem(network)
    if token_reduction is not None:
        from calibrant.train.vit import reduce_tokens

        reduction = {f.name: getattr(token_reduction, f.name) for f in dataclasses.fields(token_reduction)}
        network = reduce_tokens(network, **reduction)
    model = FeatureModel(network, input_size=input_size)
    if cosine_head:
        model.use_cosine_head()
    return model


def use_small_stem(network: Any) -> None:
    """For ResNets on 32 to 64 px: conv 3 x 3 of stride 1 in place of 7 x 7 of stride 2 and a pooling layer.

    timm's stem leaves one pixel of a 32 px image at the end of the network.
    """
    stem = getattr(network, "conv1", None)
    if not isinstance(stem, nn.Conv2d) or not hasattr(network, "maxpool"):
        raise ModelError(f"{type(network).__name__} has no ResNet stem", where="model.small_stem", fix="leave it out")
    network.conv1 = nn.Conv2d(stem.in_channels, stem.out_channels, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    network.maxpool = nn.Identity()


def _create(name: str, input_size: tuple[int, int] | None, **options: Any) -> nn.Module:
    """timm's factory; a model whose positions depend on the image size is told the size, where it takes one."""
    import timm
    from timm.models import get_pretrained_cfg

    cfg = get_pretrained_cfg(name)
    network: nn.Module
    if input_size is not None and "img_size" not in options and cfg is not None and cfg.fixed_input_size:
        try:
            network = timm.create_model(name, img_size=input_size, **options)
            return network
        except TypeError as error:
            if "img_size" not in str(error):
                raise
    network = timm.create_model(name, **options)
    return network


def _require_loaded(
    network: nn.Module, bare: Callable[[], nn.Module], drawn: Tensor, name: str, weights: str | Path
) -> None:
    """A file that shares no name with the network: timm loads nothing of it and says so in a log line.

    Told by values, since timm renames the tensors of foreign checkpoints: all matrices are those that the random state
    `drawn` gives without the file. Names decide where the file itself was made from that state.
    """
    from timm.models import load_state_dict

    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(drawn)
        initial = {k: v for k, v in bare().state_dict().items() if v.ndim >= 2}
    state = network.state_dict()
    if all(k in state and torch.equal(state[k], v) for k, v in initial.items()):
        file = load_state_dict(str(weights), weights_only=True)
        if not state.keys() & file.keys():
            raise ModelError(
                f"does not hold the weights of {name}: no name in it is one of the network's (it starts with "
                f'"{next(iter(file), "")}")', where=weights, fix="name the model that they belong to",
            )  # fmt: skip


def _require_reachable_weights(name: str) -> None:
    """timm tries for most of a minute and then raises a library's error where weights do not exist or are offline."""
    import os

    from timm.models import get_pretrained_cfg

    cfg = get_pretrained_cfg(name)
    if cfg is None or not cfg.has_weights:
        raise ModelError(f"timm has no pretrained weights for {name}", fix="choose another model or pretrained = false")
    answers_itself = os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0")  # from its cache, at once
    reached_otherwise = any(os.environ.get(v) for v in ("HF_ENDPOINT", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"))
    if answers_itself or reached_otherwise:
        return
    import socket

    try:
        socket.create_connection(("huggingface.co", 443), timeout=5).close()
    except OSError:
        if not _is_cached(cfg.hf_hub_id):
            raise ModelError(
                f"the weights of {name} cannot be downloaded from here",
                fix="copy the .safetensors file over and pass it as model.weights (--weights)",
            ) from None
        os.environ["HF_HUB_OFFLINE"] = "1"


def _is_cached(hub_id: str | None) -> bool:
    if not hub_id:
        return False
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(hub_id.partition("@")[0], "model.safetensors"), str)


def _input_size(network: Any) -> tuple[int, int]:
    size = (getattr(network, "pretrained_cfg", None) or {}).get("input_size", (3, 224, 224))
    return int(size[1]), int(size[2])


def _find_recipe(network: Any, size: tuple[int, int]) -> tuple[str, int, int]:
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
            for recipe, (forward, _) in _RECIPES.items():
                try:
                    logits, features = forward(network, x)
                except Exception as error:  # a recipe for another family
                    logger.debug("recipe %s does not fit %s: %s", recipe, name, error)
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
