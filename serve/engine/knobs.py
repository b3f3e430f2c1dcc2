"""What a caller may turn per request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant.errors import ConfigError
from calibrant.priors import Written, written

NAMES = ("temperature", "adjust_strength", "target_prior", "abstain_below", "coverage", "top_k", "ood")


@dataclass(frozen=True)
class Knobs:
    """None leaves the file's own value."""

    temperature: float | None = None
    adjust_strength: float | None = None
    target_prior: Written | None = None  # as calibrant.priors understands it; files cannot be named
    abstain_below: float | None = None
    coverage: float | None = None
    top_k: int | None = None
    ood: bool = False

    @property
    def changes_probabilities(self) -> bool:
        return not (self.temperature is None and self.adjust_strength is None and self.target_prior is None)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Knobs:
        """From request parameters, where the wire format may have made a number a string; foreign keys are ignored."""
        found = {name: values[name] for name in NAMES if values.get(name) is not None}
        for name in ("temperature", "adjust_strength", "abstain_below", "coverage"):
            if name in found:
                found[name] = _number(name, found[name])
        if "top_k" in found:
            k = _number("top_k", found["top_k"])
            if k != int(k):
                raise ConfigError(f"must be a whole number, got {k}", where="top_k")
            found["top_k"] = int(k)
        if "ood" in found:
            found["ood"] = _boolean("ood", found["ood"])
        if "target_prior" in found:
            found["target_prior"] = written(found["target_prior"], where="target_prior", files=False)
        return cls(**found).checked()

    def checked(self) -> Knobs:
        if self.temperature is not None and not 1e-3 <= self.temperature <= 1e3:
            raise ConfigError(f"must lie between 0.001 and 1000, got {self.temperature}", where="temperature")
        if self.adjust_strength is not None and not -10 <= self.adjust_strength <= 10:
            raise ConfigError(f"must lie between -10 and 10, got {self.adjust_strength}", where="adjust_strength")
        if self.abstain_below is not None and not 0 <= self.abstain_below <= 1:
            raise ConfigError(f"is a probability, got {self.abstain_below}", where="abstain_below")
        if self.coverage is not None and not 0 < self.coverage < 1:
            raise ConfigError(f"must lie between 0 and 1, got {self.coverage}", where="coverage")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"must be at least 1, got {self.top_k}", where="top_k")
        return self


def _number(name: str, value: Any) -> float:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ConfigError(f"must be a number, got {_shown(value)}", where=name)
    try:
        number = float(value)
    except OverflowError:
        raise ConfigError("must be finite, got a number above 1e308", where=name) from None
    except ValueError:
        raise ConfigError(f"must be a number, got {_shown(value)}", where=name) from None
    if not np.isfinite(number):
        raise ConfigError(f"must be finite, got {_shown(value)}", where=name)
    return number


def _boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "1", "yes", "false", "0", "no"):
        return value.lower() in ("true", "1", "yes")
    raise ConfigError(f"must be true or false, got {_shown(value)}", where=name)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
