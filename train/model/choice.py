"""The best pretrained backbone that can be had here: a file that was given, the hub's cache, the hub, or none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from calibrant.errors import ConfigError, did_you_mean
from calibrant.train.model.weights import weights_at_hand

Origin = Literal["file", "cache", "hub", "none"]

# In order of preference where nothing is named. A cached one is taken before a better one that must be downloaded,
# unless `best` is wanted.
PREFERRED: dict[str, tuple[str, ...]] = {
    "fast": ("mobilenetv4_conv_medium.e500_r224_in1k", "tf_efficientnet_lite0.in1k", "resnet18.a1_in1k"),
    "balanced": ("convnext_tiny.in12k_ft_in1k", "vit_small_patch16_224.augreg_in21k_ft_in1k", "resnet50.a1_in1k"),
    "best": ("vit_base_patch16_dinov3.lvd1689m", "convnext_base.fb_in22k_ft_in1k", "vit_base_patch14_dinov2.lvd142m"),
}
SCRATCH = "resnet18"  # where no weights can be had


@dataclass(frozen=True)
class ChosenBackbone:
    """A model of timm and where its weights come from."""

    model: str
    origin: Origin
    weights: Path | None = None

    @property
    def pretrained(self) -> bool:
        return self.origin != "none"

    def says(self) -> str:
        """Which, and from where."""
        words = {"cache": "from the hub's cache on this machine", "hub": "from the model hub"}
        if self.weights is not None:
            return f"{self.model}, weights from {self.weights.name}"
        return f"{self.model}, weights {words[self.origin]}" if self.pretrained else f"{self.model} from scratch"


def choose(preset: str, *, model: str | None = None, weights: Path | None = None) -> ChosenBackbone:
    """What was named, else the first that is cached, else the first that the hub gives, else none."""
    if weights is not None:
        return ChosenBackbone(_named(model or _of_file(weights)), "file", weights)
    if model is not None:
        name = _named(model)
        return ChosenBackbone(name, _origin(name))
    order = [name for known in (preset, *PREFERRED) for name in PREFERRED[known]]
    names = list(dict.fromkeys(order))
    cached = [name for name in names if is_cached(name)] or cached_models()
    if cached:
        return ChosenBackbone(cached[0], "cache")
    first = PREFERRED[preset][0]
    return ChosenBackbone(first, "hub") if weights_at_hand(first) else ChosenBackbone(SCRATCH, "none")


def is_cached(name: str) -> bool:
    from timm.models import get_pretrained_cfg, is_model

    from calibrant.train.model.weights import hub_file

    cfg = get_pretrained_cfg(name) if is_model(name) else None
    return cfg is not None and hub_file(cfg.hf_hub_id) is not None


def cached_models() -> list[str]:
    """Models of timm whose weights lie in the hub's cache, the largest file first."""
    from huggingface_hub import constants
    from timm.models import is_model

    from calibrant.train.model.weights import hub_file

    found = []
    for folder in Path(constants.HF_HUB_CACHE).glob("models--timm--*"):
        name = folder.name.removeprefix("models--timm--")
        file = hub_file(f"timm/{name}")
        if file is not None and is_model(name):
            found.append((-file.stat().st_size, name))
    return [name for _, name in sorted(found)]


def _origin(name: str) -> Origin:
    if is_cached(name):
        return "cache"
    return "hub" if weights_at_hand(name) else "none"


def _named(name: str) -> str:
    from timm import list_models
    from timm.models import is_model

    if not is_model(name):
        raise ConfigError(f'timm has no model "{name}"', where="--model", fix=did_you_mean(name, list_models()))
    return name


def _of_file(weights: Path) -> str:
    from timm.models import is_model

    name = weights.name.partition(".safetensors")[0].partition(".pth")[0]
    if not is_model(name):
        raise ConfigError(
            "does not tell by its name which model it is of", where=weights, fix="name it: --model resnet50"
        )
    return name
