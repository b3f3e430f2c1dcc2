"""What a server watches, and how much of its log it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from calibrant.calibration.monitoring.alarms import WINDOW
from calibrant.errors import ConfigError


@dataclass(frozen=True)
class MonitorConfig:
    window: int = WINDOW
    alpha: float = 0.001
    horizon: int = 5000
    sample: float = 1.0  # share of the requests that is logged and watched
    segment_bytes: int = 64 << 20  # of one file of the log
    segment_hours: float | None = None  # a file is closed once it is so old, however small
    half: bool = False  # logits in the log as float16
    top: int | None = None  # so many of the logits of each row in the log; all unless given
    features: bool = False  # watched too, where a file puts them out
    keep_gib: float = 10.0  # of log
    keep_days: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("window", 1), ("horizon", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} = {getattr(self, name)}: it has to be {least} or more", where="[watch]")
        if not 0 < self.alpha < 1:
            raise ConfigError(f"alpha = {self.alpha:g}: it is a probability above 0 and below 1", where="[watch]")
