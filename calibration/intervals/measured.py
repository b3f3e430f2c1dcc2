"""A number with what stands beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Measured:
    """A value, its 95 % interval, and what perfect calibration would show (mean, and the 95th percentile)."""

    value: float
    low: float | None = None
    high: float | None = None
    null: float | None = None
    null_high: float | None = None

    def to_dict(self) -> dict[str, float | None]:
        def plain(x: float | None) -> float | None:
            return None if x is None or not np.isfinite(x) else float(x)

        return {
            "value": plain(self.value), "low": plain(self.low), "high": plain(self.high), "null": plain(self.null),
            "null_high": plain(self.null_high),
        }  # fmt: skip
