"""Any timm classifier as a network that returns logits and the features they are a function of.

Most timm models obey `get_classifier()(forward_head(forward_features(x), pre_logits=True)) == model(x)`. The others
(two heads, a convolution as head, a token per head ...) have a recipe each. Which one fits is found by trying, on a
random input and with random head weights, and a model that no recipe reproduces is refused: losses that read features
and the fold of temperatures into the head are both wrong if features and logits do not belong together.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from calibrant.errors import ModelError, did_you_mean
from calibrant.train.model.foreign import foreign_network, is_foreign
from calibrant.train.model.grey import see_in_grey
from calibrant.train.model.huggingface_keys import read_huggingface, refuse_lost_bias
from calibrant.train.model.recipes import RECIPES, find_recipe
from calibrant.train.model.weights import (
    loading_results,
    must_answer_from_cache,
    not_downloaded,
    offline_if,
    require_loaded,
)

if TYPE_CHECKING:
    from calibrant.train.vit import TokenReduction


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
        self.recipe, self.feature_dim, self.num_classes = find_recipe(network, self.input_size)
        self._forward, self._layers = RECIPES[self.recipe]
        self.frozen = False  # the backbone stays in eval mode
        self.frozen_norms = False  # batch norms keep the statistics that they came with

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
        if mode:
            for module in self.network.modules():
                if self._stays_as_it_is(module):
                    module.eval()
        return self

    def _stays_as_it_is(self, module: nn.Module) -> bool:
        """A batch norm that keeps its statistics, or a layer of which nothing learns."""
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and self.frozen_norms:
            return True
        own = list(module.parameters(recurse=False))
        return bool(own) and not any(p.requires_grad for p in own)

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

    `weights`: a local checkpoint whose head may have another number of classes, in timm's names or transformers'.
    `cosine_head`: logits are cosines, for losses on angles. `small_stem`: see `use_small_stem`. `options` go to timm's
    constructor.
    """
    import timm

    answer_from_cache = False
    if is_foreign(name):
        if small_stem or token_reduction is not None:
            raise ModelError(f"{name} is no network of timm", where="model", fix="leave small_stem and reduction out")
        network = foreign_network(name, num_classes, input_size, pretrained=pretrained, weights=weights, **options)
        return _with_head(FeatureModel(network, input_size=input_size), cosine_head)
    if not timm.is_model(name):
        raise ModelError(f'timm has no model "{name}"', fix=did_you_mean(name, timm.list_models()))
    if weights is not None:
        if not Path(weights).is_file():
            raise ModelError("no such weights file", where=weights)
        options = {**options, "pretrained_cfg_overlay": _source(Path(weights), name)}
        pretrained = True
    elif pretrained:
        answer_from_cache = must_answer_from_cache(name)
    try:
        with loading_results() as loaded, offline_if(answer_from_cache):
            network = _create(name, input_size, pretrained=pretrained, num_classes=num_classes, **options)
    except FileNotFoundError:  # what the hub's library raises when it may not ask and its cache has nothing
        raise not_downloaded(name) from None
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
        require_loaded(network, loaded, name, weights)
    see_in_grey(network, int(options.get("in_chans", 3)), name)
    if small_stem:
        use_small_stem(network)
    if token_reduction is not None:
        from calibrant.train.vit import reduce_tokens

        reduction = {f.name: getattr(token_reduction, f.name) for f in dataclasses.fields(token_reduction)}
        network = reduce_tokens(network, **reduction)
    return _with_head(FeatureModel(network, input_size=input_size), cosine_head)


def _source(weights: Path, name: str) -> dict[str, Any]:
    """What timm shall load: the file, or its tensors where they bear names that timm does not know."""
    tensors = read_huggingface(weights)
    if tensors is None:
        return {"file": str(weights)}
    refuse_lost_bias(tensors, name)
    return {"state_dict": tensors}


def _with_head(model: FeatureModel, cosine: bool) -> FeatureModel:
    if cosine:
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


def _input_size(network: Any) -> tuple[int, int]:
    size = (getattr(network, "pretrained_cfg", None) or {}).get("input_size", (3, 224, 224))
    return int(size[1]), int(size[2])
