"""How large an error may be and still be called trusted, by what is at stake."""

from __future__ import annotations

from collections.abc import Mapping

from calibrant.errors import ConfigError, did_you_mean

MARGIN = 0.05
POLICIES: Mapping[str, float] = {"low": 0.10, "standard": MARGIN, "high": 0.02}  # stakes: margin


def margin_of(policy: str | None = None, margin: float | None = None) -> float:
    """The margin of a policy, or one given as a number."""
    if margin is not None:
        if policy is not None:
            raise ConfigError("a policy and a margin were given", fix="a policy is a margin; pass one of them")
        if not 0 < margin < 0.5:
            raise ConfigError(f"the margin is {margin}", fix="give a share between 0 and 0.5, for example 0.05")
        return float(margin)
    if policy is None:
        return MARGIN
    if policy not in POLICIES:
        raise ConfigError(f'no policy "{policy}"', fix=did_you_mean(policy, POLICIES))
    return POLICIES[policy]
