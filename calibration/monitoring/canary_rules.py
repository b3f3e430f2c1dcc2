"""What a canary is judged by, without the statistics that judge it: every server reads its configuration."""

from __future__ import annotations

from dataclasses import dataclass

from calibrant.errors import ConfigError


@dataclass(frozen=True)
class CanaryRules:
    """When a canary is promoted or rolled back. Losses and gains are differences of shares."""

    labels: int = 100  # of the canary before its accuracy and ECE are looked at; 0 decides without labels
    requests: int = 200  # of the canary before the rest is
    accuracy_loss: float = 0.05
    ece_gain: float = 0.05
    failed_gain: float = 0.01  # of the requests, and of the rows that are no numbers
    slower: float = 1.25
    slow_gain: float = 0.05
    alpha: float = 0.05  # chance to roll back what is as good, or to promote what is worse by the margins
    hours: float | None = None  # an undecided canary is rolled back then

    def __post_init__(self) -> None:
        for name in ("accuracy_loss", "ece_gain", "failed_gain", "slow_gain", "alpha"):
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(f"{name} must lie between 0 and 1, got {getattr(self, name)}", where="canary rules")
        if self.labels < 0 or self.requests < 1 or self.slower < 1 or (self.hours is not None and self.hours <= 0):
            raise ConfigError(
                "labels must not be negative, requests and slower be 1 or more, and hours above 0", where="canary rules"
            )
