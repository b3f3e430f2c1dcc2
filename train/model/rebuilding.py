"""Whether a network that was built elsewhere can be built again from a name, and how."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from calibrant import plugins
from calibrant.errors import CalibrantError, ModelError
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.model.feature_model import FeatureModel, build_model
from calibrant.train.model.foreign import TRANSFORMERS, headed, kept_options, last_linear, transformers_kept


@dataclass(frozen=True)
class Described:
    name: str
    options: dict[str, Any]
    network: FeatureModel


def described(model: nn.Module, num_classes: int, prepared: Preprocessing, name: str | None) -> Described | None:
    """The network as ours, if what is built from its name takes its weights and answers alike."""
    if name is not None:
        if name not in plugins.registered("models"):
            raise ModelError(f'no plugin has registered a model "{name}"', where="name", fix="leave it out")
        made = build_model(name, num_classes, input_size=prepared.size)
        weights = _weights_for(made, model, name)
        made.network.load_state_dict(weights)
        return Described(name, {}, made.eval())
    if isinstance(model, FeatureModel):
        model = model.network
    if hasattr(model, "config") and hasattr(model.config, "model_type"):
        return _of_transformers(model, num_classes, prepared)
    cfg = getattr(model, "pretrained_cfg", None)
    architecture = None if cfg is None else dict(cfg).get("architecture")
    return None if not architecture else _of_timm(str(architecture), model, num_classes, prepared)


def _of_timm(architecture: str, model: nn.Module, num_classes: int, prepared: Preprocessing) -> Described | None:
    try:
        made = build_model(architecture, num_classes, input_size=prepared.size)
        made.network.load_state_dict(model.state_dict())
    except (CalibrantError, RuntimeError):
        return None  # it was built with options that it does not remember
    x = torch.randn(2, 3, *prepared.size, generator=torch.Generator().manual_seed(0))
    made.eval()
    with torch.no_grad():
        same = torch.allclose(made(x)[0], model.to("cpu").float()(x), rtol=1e-4, atol=1e-5)
    return Described(architecture, {}, made) if same else None


def _of_transformers(model: Any, num_classes: int, prepared: Preprocessing) -> Described:
    module = copy.deepcopy(model).to("cpu").float()
    kept = transformers_kept(model.config, prepared)
    network = headed(module, last_linear(module, num_classes), kept["pretrained_cfg"])
    network.architecture = kept
    name = getattr(model.config, "_name_or_path", "") or model.config.model_type
    made = FeatureModel(network, input_size=prepared.size).eval()
    return Described(f"{TRANSFORMERS}{name}", kept_options(network, {}), made)


def _weights_for(made: FeatureModel, model: nn.Module, name: str) -> dict[str, Any]:
    """The weights of the plain module under the names that it has when it is taken apart."""
    wanted, given = made.network.state_dict(), model.state_dict()
    if wanted.keys() == given.keys():
        return dict(given)
    head = plugins.registered("models")[name].head
    out = {}
    for key, tensor in given.items():
        inside = head is not None and key.startswith(f"{head}.")
        out[f"head.{key.removeprefix(f'{head}.')}" if inside else f"body.{key}"] = tensor
    if out.keys() != wanted.keys():
        strange = sorted(out.keys() ^ wanted.keys())[0]
        raise ModelError(f'the network is not what the plugin builds as "{name}" ({strange})', where="model")
    return out
