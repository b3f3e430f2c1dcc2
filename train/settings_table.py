"""Short names of training settings, as the command's flags and `calibrant.train` have them, in their tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEYS = {
    "data": ("data", "path"), "groups": ("data", "groups"), "on_bad_image": ("data", "on_bad_image"),
    "model": ("model", "name"),
    "pretrained": ("model", "pretrained"), "weights": ("model", "weights"), "image_size": ("model", "image_size"),
    "train_last": ("model", "train_last"),
    "token_reduction": ("model", "token_reduction", "method"), "keep_rate": ("model", "token_reduction", "keep_rate"),
    "cla": ("model", "token_reduction", "cla"), "cache_tokens": ("model", "token_reduction", "cache_tokens"),
    "loss": ("loss", "name"), "epochs": ("schedule", "epochs"), "batch_size": ("engine", "batch_size"),
    "lr": ("optimizer", "lr"), "device": ("engine", "device"), "sync_bn": ("engine", "sync_bn"), "out": ("out",),
    "seed": ("seed",),
}  # fmt: skip


def laid_over(table: dict[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The table with the flags in their places; a name with a dot is its place."""
    for flag, value in flags.items():
        *parents, last = KEYS.get(flag) or tuple(flag.split("."))
        inner = table
        for parent in parents:
            if parent == "loss" and isinstance(inner.get("loss"), str):
                inner["loss"] = {"name": inner["loss"]} if last != "name" else {}
            inner = inner.setdefault(parent, {})
        if parents == ["loss"] and last == "name" and inner.get("name", value) != value:
            inner.clear()  # another loss has other options
        inner[last] = value
    return table


def nested(table: Mapping[str, Any]) -> dict[str, Any]:
    """A copy whose tables can be written into."""
    return {k: nested(v) if isinstance(v, Mapping) else v for k, v in table.items()}
