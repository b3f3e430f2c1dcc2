"""Pretrained weights: whether they can be had, and whether a file held all of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from calibrant.errors import ModelError

log = logging.getLogger(__name__)

_NAMED = 8  # tensors that a message lists


@contextmanager
def loading_results() -> Iterator[list[Any]]:
    """What every `load_state_dict` inside reports as missing and unexpected: timm keeps it to itself.

    timm loads a file without `strict` as soon as the number of classes differs, and then says nothing aloud.
    """
    results: list[Any] = []
    original = nn.Module.load_state_dict

    def reporting(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        results.append(result)
        return result

    nn.Module.load_state_dict = reporting  # type: ignore[method-assign]
    try:
        yield results
    finally:
        nn.Module.load_state_dict = original  # type: ignore[method-assign]


def require_loaded(network: Any, results: list[Any], name: str, weights: str | Path) -> None:
    """Refuse a file that left a tensor of the network as it was drawn, the classifier's aside."""
    if not results:  # a format that timm reads by itself, tensor by tensor
        return
    learned = {k for k, _ in network.named_parameters()}
    learned |= {k for k, _ in network.named_buffers() if k.endswith(("running_mean", "running_var"))}
    learned = {k for k in learned if not _inside(k, _classifiers(network))}
    missing = [k for k in results[-1].missing_keys if k in learned]
    unexpected = [k for k in results[-1].unexpected_keys if not _inside(k, _classifiers(network))]
    if len(missing) == len(learned):
        raise ModelError(
            f"does not hold the weights of {name}: no name in it is one of the network's (it starts with "
            f'"{next(iter(unexpected), "")}")',
            where=weights,
            fix="name the model that they belong to",
        )
    if _another_pooling(missing, unexpected):
        missing = []
    if missing:
        beside = f", and holds {_listed(unexpected)}, which it has not" if unexpected else ""
        raise ModelError(
            f"lacks {len(missing)} of the {len(learned)} tensors of {name}: {_listed(missing)}{beside}",
            where=weights,
            fix="is the file whole, and of this model?",
        )
    if unexpected:
        log.warning("%s: %s holds %s, which are not used", name, weights, _listed(unexpected))


def _classifiers(network: Any) -> tuple[str, ...]:
    named = (getattr(network, "pretrained_cfg", None) or {}).get("classifier") or ()
    return (named,) if isinstance(named, str) else tuple(named)


def _inside(key: str, modules: Iterable[str]) -> bool:
    return any(key == module or key.startswith(f"{module}.") for module in modules)


def _another_pooling(missing: list[str], unexpected: list[str]) -> bool:
    """A ViT that pools otherwise than the file's has its last norm under another name (norm, fc_norm)."""
    norms = {"norm", "fc_norm"}
    return {k.partition(".")[0] for k in missing} <= norms and any(_inside(k, norms) for k in unexpected)


def _listed(keys: list[str]) -> str:
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return ", ".join(keys[:_NAMED]) + more


def must_answer_from_cache(name: str) -> bool:
    """True where the weights of `name` are on this machine and the hub cannot be reached; refused where they are not.

    timm tries for most of a minute and then raises a library's error where weights do not exist or are offline.
    """
    import os

    from timm.models import get_pretrained_cfg

    cfg = get_pretrained_cfg(name)
    if cfg is None or not cfg.has_weights:
        raise ModelError(f"timm has no pretrained weights for {name}", fix="choose another model or pretrained = false")
    answers_itself = os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0")  # from its cache, at once
    reached_otherwise = any(os.environ.get(v) for v in ("HF_ENDPOINT", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"))
    if answers_itself or reached_otherwise:
        return False
    import socket

    try:
        socket.create_connection(("huggingface.co", 443), timeout=5).close()
    except OSError:
        if not _is_cached(cfg.hf_hub_id):
            raise not_downloaded(name) from None
        return True
    return False


def not_downloaded(name: str) -> ModelError:
    return ModelError(
        f"the weights of {name} cannot be downloaded from here",
        fix="copy the .safetensors file over and pass it as model.weights (--weights)",
    )


def weights_at_hand(name: str) -> bool:
    """Whether pretrained weights of `name` lie in the cache, or the hub can be asked for them."""
    import os

    from timm.models import get_pretrained_cfg, is_model

    if name.startswith(("hf:", "local-dir:")):
        folder = Path(name.partition(":")[2])
        return any(folder.glob("*.safetensors"))
    cfg = get_pretrained_cfg(name) if is_model(name) else None
    if cfg is None or not cfg.has_weights:
        return False
    if _is_cached(cfg.hf_hub_id):
        return True
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        return False
    try:
        must_answer_from_cache(name)
    except ModelError:
        return False
    return True


@contextmanager
def offline_if(offline: bool) -> Iterator[None]:
    """While it lasts the hub's library answers from its cache and asks nobody."""
    if not offline:
        yield
        return
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _is_cached(hub_id: str | None) -> bool:
    return hub_file(hub_id) is not None


def hub_file(hub_id: str | None) -> Path | None:
    """The weights in the hub's cache on this machine."""
    if not hub_id:
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(hub_id.partition("@")[0], "model.safetensors")
    return Path(found) if isinstance(found, str) else None
