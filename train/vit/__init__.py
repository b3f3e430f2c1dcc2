"""Vision transformers that shed tokens on the way, with the cross-layer head and cache that make up for it."""

from __future__ import annotations

from calibrant.train.vit.config import METHODS, TokenReduction
from calibrant.train.vit.hook import ReducedViT, reduce_tokens

__all__ = ["METHODS", "ReducedViT", "TokenReduction", "reduce_tokens"]
