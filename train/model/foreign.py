"""Networks that are not timm's own: a plugin's, one of a model hub, or a Hugging Face transformers classifier.

`hf:FOLDER-OR-NAME` is a transformers image classifier (its config.json and safetensors); `hf-hub:NAME` and
`local-dir:FOLDER` are timm's ways to a model of a hub or a folder; any other name is a plugin's.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calibrant import plugins
from calibrant.errors import MissingExtra, ModelError
from calibrant.images.preprocessing import Preprocessing
from calibrant.plugins import ModelRecord

log = logging.getLogger(__name__)

TRANSFORMERS, HUBS = "hf:", ("hf-hub:", "hf_hub:", "local-dir:")
ARCHITECTURE = "architecture"  # option that a run keeps, so that it needs neither hub nor folder again


def is_foreign(name: str) -> bool:
    return name in plugins.registered("models") or name.startswith((TRANSFORMERS, *HUBS))


def foreign_network(
    name: str,
    num_classes: int,
    input_size: tuple[int, int] | None,
    *,
    pretrained: bool = False,
    weights: str | Path | None = None,
    **options: Any,
) -> nn.Module:
    """The network with a head for `num_classes`, of a shape that `recipes` knows."""
    architecture = options.pop(ARCHITECTURE, None)
    record = plugins.registered("models").get(name)
    if record is not None:
        network = _of_plugin(name, record, num_classes, input_size, options)
        if pretrained:
            log.warning("%s: a plugin's model brings its own weights; --pretrained says nothing to it", name)
    elif name.startswith(TRANSFORMERS):
        network = _of_transformers(name.removeprefix(TRANSFORMERS), num_classes, input_size, architecture, pretrained)
    else:
        network = _of_hub(name, num_classes, architecture, pretrained, options)
    if weights is not None:
        _load(network, Path(weights), name)
    return network


def kept_options(network: nn.Module, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a run writes down: with what is needed to build the network again where its source is gone."""
    architecture = getattr(network, "architecture", None)
    return {**options, **({ARCHITECTURE: architecture} if architecture is not None else {})}


class HeadedNetwork(nn.Module):
    """A module taken apart at its head, as timm's models are: forward_features, forward_head, get_classifier.

    The head's place is taken by an identity, so what the module gives is the head's input.
    """

    def __init__(self, module: nn.Module, head: str, pretrained_cfg: Mapping[str, Any]) -> None:
        super().__init__()
        parent, _, name = head.rpartition(".")
        try:
            owner = module.get_submodule(parent)
            self.head = owner.get_submodule(name)
        except AttributeError:
            known = ", ".join(n for n, m in module.named_modules() if isinstance(m, nn.Linear)) or "no linear layer"
            raise ModelError(
                f'{type(module).__name__} has no module "{head}"', where="head", fix=f"it has {known}"
            ) from None
        setattr(owner, name, nn.Identity())
        self.body = module
        self.pretrained_cfg = dict(pretrained_cfg)
        self.architecture: dict[str, Any] | None = None

    def forward_features(self, x: Tensor) -> Tensor:
        """(N, D), what the head reads."""
        found = self.body(x)
        found = getattr(found, "logits", found)  # transformers' output with the identity in the head's place
        return found.flatten(1) if isinstance(found, Tensor) and found.ndim > 2 else found  # type: ignore[no-any-return]

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        return features if pre_logits else self.head(features)

    def get_classifier(self) -> nn.Module:
        return self.head

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


def headed(module: nn.Module, head: str, pretrained_cfg: Mapping[str, Any]) -> HeadedNetwork:
    """The module taken apart, proved to give the same logits as before."""
    before = copy.deepcopy(module).eval()
    network = HeadedNetwork(module, head, pretrained_cfg).eval()
    height, width = network.pretrained_cfg["input_size"][1:]
    x = torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        try:
            expected = before(x)
        except Exception as error:  # whatever somebody's module raises
            raise ModelError(
                f"{type(module).__name__} does not take pictures of {height} x {width} ({error})",
                where="model",
                fix="register it with its input_size",
            ) from None
        expected = getattr(expected, "logits", expected)
        try:
            found = network(x)
        except RuntimeError:  # what stands behind the head does not take the head's input
            found = x
    if found.shape != expected.shape or not torch.allclose(found, expected, rtol=1e-4, atol=1e-5):
        raise ModelError(
            f'what {type(module).__name__} gives is not what its module "{head}" gives',
            where="head",
            fix="name the module that makes the logits, with nothing behind it",
        )
    return network.train()


def _of_plugin(
    name: str, record: ModelRecord, num_classes: int, input_size: tuple[int, int] | None, options: dict[str, Any]
) -> nn.Module:
    size = input_size or record.input_size
    cfg = _pretrained_cfg(size, record.mean, record.std, interpolation=record.interpolation, crop_pct=record.crop_pct)
    try:
        network = record.make(num_classes=num_classes, **options)
    except TypeError as error:
        raise ModelError(f"{name} does not take these options ({error})", where="model.options") from None
    if not isinstance(network, nn.Module):
        raise ModelError(f"{name} gave {type(network).__name__}, expected an nn.Module", where="plugin")
    if record.head is not None:
        return headed(network, record.head, cfg)
    if not hasattr(network, "get_classifier"):
        known = ", ".join(n for n, m in network.named_modules() if isinstance(m, nn.Linear)) or "none"
        raise ModelError(
            f"{name} does not say which of its modules is the head",
            where="plugin",
            fix=f'register_model("{name}", head=...): its linear layers are {known}',
        )
    network.pretrained_cfg = {**cfg, **(getattr(network, "pretrained_cfg", None) or {})}  # type: ignore[assignment]
    return network


def _pretrained_cfg(
    size: tuple[int, int], mean: Any, std: Any, *, interpolation: str = "bicubic", crop_pct: float = 1.0
) -> dict[str, Any]:
    return {
        "input_size": (3, *size), "mean": tuple(mean), "std": tuple(std), "interpolation": interpolation,
        "crop_pct": crop_pct, "crop_mode": "center",
    }  # fmt: skip


# ---- Hugging Face transformers ----


def _of_transformers(
    source: str, num_classes: int, input_size: tuple[int, int] | None, kept: Mapping[str, Any] | None, pretrained: bool
) -> nn.Module:
    try:
        from transformers import AutoConfig, AutoModelForImageClassification
    except ModuleNotFoundError:
        raise MissingExtra(f"--model hf:{source}", "huggingface", "transformers") from None
    if kept is None:
        try:
            config = AutoConfig.from_pretrained(source, num_labels=num_classes, trust_remote_code=False)
        except (OSError, ValueError) as error:
            first = str(error).strip().splitlines()[0]
            raise ModelError(f"no transformers classifier there ({first})", where=f"hf:{source}") from None
        prepared = _declared(source, config, input_size)
    else:
        block = dict(kept["config"])
        config = AutoConfig.for_model(block.pop("model_type"), **block)
        config.num_labels = num_classes
        prepared = dict(kept["pretrained_cfg"])
    if pretrained:
        module = AutoModelForImageClassification.from_pretrained(
            source, config=config, ignore_mismatched_sizes=True, use_safetensors=True, trust_remote_code=False
        )
    else:
        module = AutoModelForImageClassification.from_config(config, trust_remote_code=False)
    network = headed(module, last_linear(module, num_classes), prepared)
    network.architecture = {"config": config.to_dict(), "pretrained_cfg": prepared}
    return network


def transformers_kept(config: Any, prepared: Preprocessing) -> dict[str, Any]:
    """What a run keeps of a transformers classifier, to build it again."""
    cfg = _pretrained_cfg(
        prepared.size,
        prepared.mean,
        prepared.std,
        interpolation=prepared.interpolation,
        crop_pct=max(prepared.size) / prepared.resize,
    )
    return {"config": config.to_dict(), "pretrained_cfg": {**cfg, "crop_mode": prepared.crop}}


def last_linear(module: nn.Module, num_classes: int) -> str:
    """The name of the last linear layer with a row for each class."""
    named = module.named_modules()
    found: list[str] = [n for n, m in named if isinstance(m, nn.Linear) and m.out_features == num_classes]
    if not found:
        raise ModelError(f"{type(module).__name__} has no linear layer of {num_classes} classes", where="model")
    return found[-1]


def _declared(source: str, config: Any, input_size: tuple[int, int] | None) -> dict[str, Any]:
    """How its pictures are prepared: of preprocessor_config.json, or a guess that is told."""
    size = input_size or _config_size(config)
    folder = Path(source)
    block: dict[str, Any] = {}
    if (folder / "preprocessor_config.json").is_file():
        import json

        block = json.loads((folder / "preprocessor_config.json").read_text())
    elif not folder.is_dir():
        from transformers.image_processing_base import ImageProcessingMixin

        try:
            block = ImageProcessingMixin.get_image_processor_dict(source)[0]
        except OSError:
            block = {}
    if not block:
        log.warning("hf:%s has no preprocessor_config.json: ImageNet's mean and deviation are a guess", source)
        return _pretrained_cfg(size, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), interpolation="bilinear")
    from calibrant.images.declared.huggingface import of_hugging_face

    declared = of_hugging_face(block, f"hf:{source}")
    for guess in declared.guesses:
        log.warning("hf:%s: %s", source, guess)
    p = declared.with_size(size).preprocessing
    cfg = _pretrained_cfg(p.size, p.mean, p.std, interpolation=p.interpolation, crop_pct=max(p.size) / p.resize)
    return {**cfg, "crop_mode": p.crop}


def _config_size(config: Any) -> tuple[int, int]:
    size = getattr(config, "image_size", None) or 224
    return (int(size), int(size)) if isinstance(size, int) else (int(size[0]), int(size[1]))


# ---- timm's hubs ----


def _of_hub(
    name: str, num_classes: int, kept: Mapping[str, Any] | None, pretrained: bool, options: dict[str, Any]
) -> nn.Module:
    import timm
    from timm.models import load_model_config_from_hf, parse_model_name

    if kept is None:
        source, where = parse_model_name(name)
        try:
            if source == "hf-hub":
                cfg, architecture, arguments = load_model_config_from_hf(where)
            else:
                from timm.models._hub import load_model_config_from_path

                cfg, architecture, arguments = load_model_config_from_path(where)
        except Exception as error:  # of the hub's library
            raise ModelError(f"has no config of timm ({str(error).strip().splitlines()[0]})", where=name) from None
        kept = {"name": architecture, "arguments": dict(arguments), "pretrained_cfg": _plain(cfg)}
    made = name if pretrained else str(kept["name"])
    more = {} if pretrained else {**kept["arguments"]}
    network: Any = timm.create_model(made, pretrained=pretrained, num_classes=num_classes, **{**more, **options})
    if not pretrained:
        network.pretrained_cfg = {**(getattr(network, "pretrained_cfg", None) or {}), **kept["pretrained_cfg"]}
    network.architecture = dict(kept)
    return network  # type: ignore[no-any-return]


def _plain(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """What says how pictures are prepared; the rest names files."""
    known = ("input_size", "mean", "std", "interpolation", "crop_pct", "crop_mode", "classifier", "first_conv",
             "fixed_input_size", "pool_size")  # fmt: skip
    return {k: list(v) if isinstance(v, tuple) else v for k, v in cfg.items() if k in known}


def _load(network: nn.Module, file: Path, name: str) -> None:
    from safetensors.torch import load_file

    if not file.is_file() or file.suffix != ".safetensors":
        raise ModelError("is no .safetensors file", where=file)
    tensors = load_file(file)
    own = network.state_dict()
    fitting = {k: t for k, t in tensors.items() if k in own and own[k].shape == t.shape}
    lacking = [k for k in own if k not in fitting and not k.startswith("head.")]
    if lacking:
        raise ModelError(f"lacks {len(lacking)} of the {len(own)} tensors of {name}, {lacking[0]} for one", where=file)
    network.load_state_dict({**own, **fitting})
