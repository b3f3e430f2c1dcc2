"""The settings of a token reduction, checked once; loads no torch, so a command line may import it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibrant.errors import ConfigError, did_you_mean
from calibrant.train.vit.reductions.table import REDUCTIONS

METHODS = ("none", *REDUCTIONS)
HEADS = ("none", "cla", "ifa")


@dataclass(frozen=True)
class TokenReduction:
    """What `reduce_tokens` is asked for.

    keep_rate: share of the tokens that each stage keeps, one number or one per location, 0 < r <= 1 (1 = leave alone).
    locations: 0-based blocks in which tokens may shrink.
    cla: True or "cla" = cross-layer aggregation head, "ifa" = its linear baseline, False = the network's own head.
    cache_tokens: learnable tokens of the cross-layer cache; cache_pool adds the mean of the patches to every write
    (None: where there are such tokens), cache_pool_class counts the class token into it, late_recovery reads once more
    before the last block. cache_pool = True beside cache_tokens = 0 is a cache of means alone; with neither there is no
    cache, and `cache` says so (None: derived).
    tome_repeat: let ToMe reach rates below one half by repeated matching; off, it follows the paper (half at most).
    """

    method: str = "none"
    keep_rate: float | tuple[float, ...] = 1.0
    locations: tuple[int, ...] = (3, 6, 9)
    cla: bool | str = False
    cache_tokens: int = 0
    cache_pool: bool | None = None
    cache_pool_class: bool = False
    late_recovery: bool = True
    tome_repeat: bool = False
    cla_multiplier: int = 2
    ratio_weight: float = 2.0
    cache: bool | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ConfigError(f'no token reduction is called "{self.method}"', fix=did_you_mean(self.method, METHODS))
        if not self.locations or list(self.locations) != sorted(set(self.locations)) or self.locations[0] < 0:
            raise ConfigError(
                f"locations {self.locations} must be different blocks in rising order, counted from 0",
                fix="for example (3, 6, 9)",
            )
        rates = self.keep_rate if isinstance(self.keep_rate, tuple) else (self.keep_rate,)
        if isinstance(self.keep_rate, tuple) and len(rates) != len(self.locations):
            raise ConfigError(
                f"{len(rates)} keep rates were given for {len(self.locations)} locations",
                fix="give one number, or one per location",
            )
        for rate in rates:
            if not 0.0 < rate <= 1.0:
                raise ConfigError(f"keep rate {rate:g} is not in (0, 1]", fix="0.25 keeps a quarter at each stage")
        if self.method == "none" and any(rate != 1.0 for rate in rates):
            raise ConfigError('a keep rate below 1 needs a method, but method is "none"', fix="for example evit")
        if self.head not in HEADS:
            raise ConfigError(f'no head is called "{self.cla}"', fix=did_you_mean(str(self.cla), HEADS))
        if self.cache_tokens < 0:
            raise ConfigError(f"cache_tokens is {self.cache_tokens}", fix="use 0 (no cache) or more")
        asked = self.cache_tokens > 0 or self.cache_pool is True
        if self.cache is True and not asked:
            raise ConfigError("cache is on, but holds nothing", fix="set cache_tokens, or cache_pool = true")
        if self.cache is None:
            object.__setattr__(self, "cache", asked)
        if self.cache_pool is None:
            object.__setattr__(self, "cache_pool", True)
        if self.cla_multiplier < 1:
            raise ConfigError(f"cla_multiplier is {self.cla_multiplier}", fix="use 1 or more (the paper's is 2)")
        if self.ratio_weight < 0:
            raise ConfigError(f"ratio_weight is {self.ratio_weight:g}", fix="use 0 or more (the paper's is 2)")

    @property
    def head(self) -> str:
        """Name of the head: "none" (the network's own), "cla" or "ifa"."""
        if isinstance(self.cla, str):
            return self.cla
        return "cla" if self.cla else "none"

    @property
    def rates(self) -> tuple[float, ...]:
        """Keep rate of each location."""
        return self.keep_rate if isinstance(self.keep_rate, tuple) else (self.keep_rate,) * len(self.locations)

    def fit(self, depth: int) -> None:
        """Refuse locations that a network of `depth` blocks has not."""
        if self.locations[-1] >= depth:
            quarters = sorted({depth * q // 4 for q in (1, 2, 3)})
            raise ConfigError(
                f"location {self.locations[-1]} is outside the network, which has blocks 0 to {depth - 1}",
                where="model.token_reduction.locations",
                fix=f"give smaller ones, for example {quarters}",
            )


def stored(table: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a run wrote down, as `TokenReduction` reads them today.

    Runs of before there was a cache of means alone wrote cache_pool = true beside cache_tokens = 0 and had no cache.
    """
    return {**table, "cache": table.get("cache", table.get("cache_tokens", 0) > 0)}
