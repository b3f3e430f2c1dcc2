"""A timm network without its classifier: images to features, with a hash that says which network it is."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calibrant.errors import FormatError, ModelError
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.heads.features.cache import FeatureCache, Pooling
from calibrant.train.model.feature_model import FeatureModel, build_model
from calibrant.train.run.tensors import write_tensors

BACKBONE_FILE = "backbone.safetensors"  # in the cache: a head needs neither hub nor file
_CLASSES = 2  # of the classifier that timm insists on; it is never used


class Backbone(nn.Module):
    """forward(images) -> (N, D), or (N, T, D) patch tokens with pooling "tokens".

    head         what the model's own classifier reads: timm's pooling and norm
    class        the class token after the final norm
    mean         mean of the patch tokens, or of the positions of a feature map
    class+mean   the two beside one another
    tokens       the patch tokens, or the positions of a feature map, one by one

    `layers`: so many blocks (stages, of a convolutional network) from the end are pooled and laid side by side, the
    last one last; the final norm is applied to each block of a transformer, as DINOv2's evaluation does.
    """

    def __init__(
        self, model: FeatureModel, pooling: Pooling, name: str, options: Mapping[str, Any], layers: int = 1
    ) -> None:
        super().__init__()
        self.model, self.pooling, self.name, self.options, self.layers = model, pooling, name, dict(options), layers
        if layers > 1 and pooling in ("head", "tokens"):
            fix = "use --pooling class, mean or class+mean"
            raise ModelError(f"--pooling {pooling} reads the last layer alone", where="--layers", fix=fix)
        probe = self._probe()
        self.width = int(probe.shape[-1])
        self.tokens = int(probe.shape[1]) if probe.ndim == 3 else 1

    def forward(self, images: Tensor) -> Tensor:
        if self.pooling == "head":
            features: Tensor = self.model(images)[1]
            return features
        if self.layers > 1:
            return torch.cat([part for block in self._blocks(images) for part in self._parts(*block)], 1)
        return self._pool(self.model.network.forward_features(images))  # type: ignore[operator]

    def _pool(self, maps: Any) -> Tensor:
        network: Any = self.model.network
        if not isinstance(maps, Tensor) or maps.ndim not in (3, 4):
            raise ModelError(f"{self.name} gives no patch tokens and no feature map", fix="use --pooling head")
        if maps.ndim == 4:
            self._refuse_without_class(0)
            channels_first = maps.shape[1] == network.num_features and maps.shape[-1] != network.num_features
            tokens = maps.flatten(2).transpose(1, 2) if channels_first else maps.flatten(1, 2)
            return tokens.mean(1) if self.pooling == "mean" else tokens
        prefix = int(getattr(network, "num_prefix_tokens", 0))
        self._refuse_without_class(prefix)
        patches = maps[:, prefix:]
        return patches if self.pooling == "tokens" else torch.cat(self._parts(patches, maps[:, :prefix]), 1)

    def _refuse_without_class(self, prefix: int) -> None:
        if self.pooling in ("class", "class+mean") and not prefix:
            raise ModelError(f"{self.name} has no class token", fix="use --pooling head or mean")

    def _parts(self, patches: Tensor, prefix: Tensor) -> list[Tensor]:
        """What the pooling takes of patch tokens (N, T, D) and of the tokens before them (N, P, D)."""
        found = []
        if self.pooling in ("class", "class+mean"):
            found.append(prefix[:, 0])
        if self.pooling in ("mean", "class+mean"):
            found.append(patches.mean(1))
        return found

    def _blocks(self, images: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Patch tokens and the tokens before them, of each of the last blocks."""
        network: Any = self.model.network
        intermediates = getattr(network, "forward_intermediates", None)
        if intermediates is None:
            raise ModelError(f"{self.name} does not give its inner layers", where="--layers", fix="leave it out")
        takes = inspect.signature(intermediates).parameters
        tokens = {"return_prefix_tokens": True, "norm": True} if "return_prefix_tokens" in takes else {}
        try:
            maps = intermediates(images, indices=self.layers, intermediates_only=True, output_fmt="NCHW", **tokens)
        except (AssertionError, ValueError, IndexError, TypeError) as error:
            what = f"{self.name} does not give {self.layers} layers ({error})".replace(" ()", "")
            raise ModelError(what, where="--layers", fix="ask for fewer") from None
        if len(maps) != self.layers:
            raise ModelError(f"{self.name} has {len(maps)} layers to pool", where="--layers", fix="ask for fewer")
        blocks = []
        for block in maps:
            patches, prefix = block if isinstance(block, tuple) else (block, None)
            rows = patches.flatten(2).transpose(1, 2)
            prefix = rows[:, :0] if prefix is None else prefix
            self._refuse_without_class(prefix.shape[1])
            blocks.append((rows, prefix))
        return blocks

    @torch.no_grad()
    def _probe(self) -> Tensor:
        parameter = next(self.parameters())
        x = torch.zeros(1, 3, *self.model.input_size, device=parameter.device, dtype=parameter.dtype)
        result: Tensor = self.eval()(x)
        return result

    def own_state(self) -> dict[str, Tensor]:
        """The network's tensors without the unused classifier."""
        layers = {id(p) for layer in self.model.classifier_layers() for p in layer.parameters()}
        dropped = {name for name, p in self.model.network.named_parameters() if id(p) in layers}
        return {k: v for k, v in self.model.network.state_dict().items() if k not in dropped}

    def sha256(self) -> str:
        """Of names, shapes and values of `own_state`: the same weights have it whatever file they came from."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.own_state().items()):
            values = tensor.detach().cpu().contiguous()
            digest.update(f"{name} {values.dtype} {tuple(values.shape)}\n".encode())
            digest.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()


def load_backbone(
    name: str,
    *,
    pooling: Pooling = "head",
    pretrained: bool = True,
    weights: Path | None = None,
    input_size: tuple[int, int] | None = None,
    options: Mapping[str, Any] | None = None,
    layers: int = 1,
    seed: int = 0,
) -> Backbone:
    """The timm model `name` in eval mode, parameters frozen. Without weights: random ones, the same for each `seed`."""
    options = dict(options or {})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_model(
            name, _CLASSES, pretrained=pretrained and weights is None, weights=weights, input_size=input_size, **options
        )
    model.eval().requires_grad_(False)
    return Backbone(model, pooling, name, options, layers)


def save_backbone(cache: Path, backbone: Backbone) -> None:
    """The weights beside the features."""
    tensors = {k: v.detach().cpu().contiguous().clone() for k, v in backbone.own_state().items()}
    write_tensors(cache / BACKBONE_FILE, tensors)


def cached_backbone(cache: FeatureCache) -> Backbone:
    """The backbone that made the features; its hash is checked."""
    from safetensors.torch import load_file

    m = cache.manifest
    file = cache.path / BACKBONE_FILE
    if not file.is_file():
        raise FormatError(
            "has no backbone to fuse with", where=file, fix="run the same calibrant features command again to add it"
        )
    size = Preprocessing.from_dict(m.preprocessing, where=cache.path).size
    backbone = load_backbone(
        str(m.model["name"]),
        pooling=m.pooling,
        pretrained=False,
        input_size=size,
        options=m.model["options"],
        layers=m.layers,
    )
    backbone.model.network.load_state_dict(load_file(file), strict=False)
    if backbone.sha256() != m.model["sha256"]:
        raise FormatError("is not the backbone that the features were made with", where=file, fix="extract again")
    return backbone
