"""What every reduction has in common: one stage, its planned token count, and the block that it runs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import nn

from calibrant.train.vit.attention import Layer
from calibrant.train.vit.tokens import Tokens


@dataclass(frozen=True)
class Stage:
    """Stage `index` of a schedule of keep rates; `cached`: tokens come back from a cross-layer cache.

    Counts follow spec/clca.md 4 to the last bit: K = floor(P r^(s+1)) or ceil(r n) in double precision as written
    (0.55 * 100 = 55.000000000000007 gives 56), so none of it may be tidied up algebraically.
    """

    index: int
    rates: tuple[float, ...]
    cached: bool = False

    @property
    def rate(self) -> float:
        """Keep rate of this stage."""
        return self.rates[self.index]

    @property
    def last(self) -> bool:
        """Whether no stage follows."""
        return self.index == len(self.rates) - 1

    def share(self, index: int | None = None) -> float:
        """r^(s+1), or the product of the rates so far where they differ."""
        s = self.index if index is None else index
        if len(set(self.rates)) == 1:
            return self.rates[0] ** (s + 1)
        return math.prod(self.rates[: s + 1])

    def planned(self, patches: int) -> int:
        """K_s = floor(P r^(s+1)), at least 1.

        Differs: the reference allows 0, which leaves the cache the mean of nothing (NaN).
        """
        return max(1, int(patches * self.share()))

    def planned_away(self, patches: int) -> int:
        """K_(s-1) - K_s, with K_-1 = P: tokens that the plan takes out in this stage. The plan itself may reach 0."""
        before = patches if self.index == 0 else int(patches * self.share(self.index - 1))
        return before - int(patches * self.share())

    def relative(self, count: int) -> int:
        """ceil(r n) of the n tokens that are there."""
        return max(1, math.ceil(self.rate * count))


class Reduction(nn.Module, ABC):
    """One stage of one method: runs its block and lets the tokens shrink somewhere inside it."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage

    @abstractmethod
    def forward(self, layer: Layer, t: Tokens, patches: int) -> Tokens:
        """Tokens leaving the block; `patches` is the number of patches of the image."""

    @abstractmethod
    def leaves(self, count: int, patches: int, suffix: int) -> int:
        """Tokens after the prefix that this stage leaves of `count` (of which `suffix` were appended)."""

    def extra_macs(self, count: int, patches: int, suffix: int, dim: int) -> int:
        """Multiply-accumulates on top of the block itself."""
        del count, patches, suffix, dim
        return 0
