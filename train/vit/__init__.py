"""Vision transformers that shed tokens on the way, with the cross-layer head and cache that make up for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calibrant.train.vit.config import METHODS, TokenReduction

if TYPE_CHECKING:
    from calibrant.train.vit.hook import ReducedViT, reduce_tokens

__all__ = ["METHODS", "ReducedViT", "TokenReduction", "reduce_tokens"]


def __getattr__(name: str) -> Any:
    """The network is imported when asked for: a command line reads the settings without torch."""
    if name not in ("ReducedViT", "reduce_tokens"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from calibrant.train.vit import hook

    return getattr(hook, name)
