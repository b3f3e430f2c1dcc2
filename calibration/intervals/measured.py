"""A number with what stands beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Measured:
    """A value, its 95 % interval, and what perfect calibration would show (mean, and the 95th percentile).

    Of a binned error also: `true_error`, the value freed of what noise adds, and `largest`, the most that is possible.
    `withheld`: why there is no interval, in words, where one would not hold the truth.
    """

    value: float
    low: float | None = None
    high: float | None = None
    null: float | None = None
    null_high: float | None = None
    true_error: float | None = None
    largest: float | None = None
    withheld: str | None = None

    @property
    def chance(self) -> float | None:
        """The part of the value that is noise."""
        return None if self.true_error is None else max(self.value - self.true_error, 0.0)

    @property
    def told(self) -> bool:
        """Whether these rows say anything: an interval over more than half of what is possible does not."""
        if self.low is None or self.high is None:
            return False
        return self.largest is None or self.high - self.low <= self.largest / 2

    def without_interval(self, why: str) -> Measured:
        return replace(self, low=None, high=None, true_error=None, largest=None, withheld=why)

    def to_dict(self) -> dict[str, Any]:
        def plain(x: float | None) -> float | None:
            return None if x is None or not np.isfinite(x) else float(x)

        out: dict[str, Any] = {
            "value": plain(self.value), "low": plain(self.low), "high": plain(self.high), "null": plain(self.null),
            "null_high": plain(self.null_high),
        }  # fmt: skip
        if self.true_error is not None:
            out |= {"true_error": plain(self.true_error), "largest": plain(self.largest)}
        return out if self.withheld is None else out | {"withheld": self.withheld}
