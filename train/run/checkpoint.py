"""One file with everything that a run needs to go on: tensors in safetensors, the rest as JSON in its header.

No pickle: a checkpoint from a stranger is data. The file is replaced as a whole, so a kill at any moment leaves the old
one or the new one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calibrant.errors import FormatError
from calibrant.train.run.epoch_files import FOLDER as EPOCHS_FOLDER
from calibrant.train.run.folder import FORMAT_VERSION, read_header
from calibrant.train.run.tensors import write_tensors

_TENSOR, _PAIRS, _FLOAT = "__tensor__", "__pairs__", "__float__"


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write nested dicts and lists of tensors, numbers, strings and None."""
    tensors: dict[str, Tensor] = {}
    structure = _flatten(state, "state", tensors)
    text = json.dumps({"kind": "checkpoint", "format_version": FORMAT_VERSION, "structure": structure}, allow_nan=False)
    write_tensors(path, tensors, text)


def load_checkpoint(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    block = read_header(path, kind="checkpoint")
    try:
        tensors = load_file(path)
        state: dict[str, Any] = _restore(block["structure"], tensors)
    except (SafetensorError, KeyError, TypeError) as error:
        raise FormatError(f"damaged checkpoint ({error})", where=path) from None
    return state


def remove_leftovers(run: Path) -> None:
    """Temporary files that a killed process left behind: ours, and those that safetensors writes beside its files."""
    for folder in (run, run / EPOCHS_FOLDER, run / "predictions"):
        for file in (*folder.glob(".*.tmp.*"), *folder.glob(".tmp??????")):
            file.unlink(missing_ok=True)


def _flatten(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        # A clone each: tensors may share memory or be in channels_last order, and safetensors refuses both.
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {_TENSOR: name}
    if isinstance(value, Mapping):
        if all(isinstance(k, str) for k in value):
            return {k: _flatten(v, f"{name}.{k}", tensors) for k, v in value.items()}
        return {_PAIRS: [[k, _flatten(v, f"{name}.{k}", tensors)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        return [_flatten(v, f"{name}.{i}", tensors) for i, v in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):  # an NLL, say; JSON has no word for it
        return {_FLOAT: repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{name} is a {type(value).__name__}, which a checkpoint cannot hold")


def _restore(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        if _FLOAT in value:
            return float(value[_FLOAT])
        if _PAIRS in value:
            return {k: _restore(v, tensors) for k, v in value[_PAIRS]}
        return {k: _restore(v, tensors) for k, v in value.items()}
    if isinstance(value, list):
        return [_restore(v, tensors) for v in value]
    return value


def environment() -> dict[str, Any]:
    """What bit-identical repetition depends on besides the configuration."""
    import numpy as np
    import timm

    from calibrant._version import __version__

    return {
        "calibrant": __version__, "torch": torch.__version__, "timm": timm.__version__, "numpy": np.__version__,
        "threads": torch.get_num_threads(), "mkldnn": bool(torch.backends.mkldnn.enabled),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }  # fmt: skip
