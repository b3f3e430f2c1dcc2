"""Tensors of torch.save, read with weights_only: a dictionary, a pair of scores and labels, a tensor, or chunks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.artifacts.foreign.columns import Column, Columns, from_objects, text_column
from calibrant.errors import DataError, FormatError, MissingExtra


def read_torch(path: Path) -> Columns:
    try:
        import torch
    except ModuleNotFoundError:
        raise MissingExtra(f"reading {path.name}", "train", "torch") from None
    try:
        block = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and runtime errors alike
        what = "holds more than tensors" if "weights_only" in str(error) or "Unsupported" in str(error) else "no .pt"
        raise FormatError(
            f"{what} and is not loaded ({str(error).splitlines()[0][:100]})",
            where=path,
            fix='save tensors: torch.save({"logits": z, "labels": y}, FILE), numpy by torch.from_numpy',
        ) from None
    return Columns(_columns(block, path))


def _columns(block: Any, path: Path) -> dict[str, Column]:
    import torch

    if isinstance(block, torch.Tensor):
        return {"scores": tensor_values(block)}
    if isinstance(block, Mapping):
        inner = {str(k): v for k, v in block.items() if isinstance(v, Mapping) and _tensors(v)}
        if inner and not _tensors(block):  # {"epoch": 3, "results": {"logits": ..., "labels": ...}}
            if len(inner) > 1:
                raise DataError(f"holds several tables: {', '.join(inner)}", where=path, fix="save one of them")
            return _columns(next(iter(inner.values())), path)
        return {str(k): c for k, v in block.items() if (c := _value(v, str(k), path)) is not None}
    if isinstance(block, (list, tuple)) and block and all(isinstance(b, torch.Tensor) for b in block):
        if len(block) == 2 and block[0].ndim == 2 and len(block[0]) == len(block[1]) and not _like(block):
            return {"scores": tensor_values(block[0]), "labels": tensor_values(block[1])}
        return {"scores": _joined(block, "scores", path)}
    if isinstance(block, (list, tuple)) and block and all(_pair(b) for b in block):
        scores, labels = zip(*block, strict=True)
        return {"scores": _joined(scores, "scores", path), "labels": _joined(labels, "labels", path)}
    raise DataError("holds no tensors of scores", where=path, fix='torch.save({"logits": z, "labels": y}, FILE)')


def _tensors(block: Mapping[Any, Any]) -> bool:
    import torch

    return any(isinstance(v, torch.Tensor) and v.ndim > 0 for v in block.values())


def _value(value: Any, name: str, path: Path) -> Column | None:
    import torch

    if isinstance(value, torch.Tensor):
        return None if value.ndim == 0 else tensor_values(value)
    if isinstance(value, (list, tuple)) and value:
        if all(isinstance(v, torch.Tensor) for v in value):
            return _joined(value, name, path)
        if all(isinstance(v, str) for v in value):
            return text_column(value)
        if all(isinstance(v, (int, float, list, tuple)) for v in value):
            return from_objects(list(value), name=name, where=path)
    return None


def _joined(parts: Any, name: str, path: Path) -> Column:
    arrays = [tensor_values(p) for p in parts]
    if all(a.ndim == 0 for a in arrays):
        return np.stack(arrays)
    if len({(a.ndim, *a.shape[1:]) for a in arrays}) != 1:
        raise DataError(f"`{name}` is a list of tensors of other shapes than one another", where=path)
    return np.concatenate(arrays)


def _like(block: Any) -> bool:
    """Two chunks of one thing rather than scores and labels."""
    return bool(block[0].shape == block[1].shape and block[0].dtype == block[1].dtype)


def _pair(value: Any) -> bool:
    import torch

    return isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(v, torch.Tensor) for v in value)


def tensor_values(tensor: Any) -> Column:
    """bfloat16 has no numpy type, and a gradient none of its own."""
    import torch

    plain = tensor.detach().cpu()
    values: Column = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    return values
