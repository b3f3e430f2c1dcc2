"""What held-out losses say of each member of a choice: means, and paired intervals over the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrant.calibration.calibrators.estimation.candidates import Member
from calibrant.calibration.calibrators.estimation.pooling import HeldOut, Vector
from calibrant.calibration.intervals.means import mean_interval


def table_of(
    kept: Sequence[Member], found: HeldOut, taken: Vector, shares: Vector
) -> dict[str, dict[str, float | None]]:
    """`taken`: loss of each row under what was taken."""
    table = {}
    for member, loss, share in zip(kept, found.losses, shares, strict=True):
        low, high = interval(loss - taken, found.weights)
        nll_low, nll_high = interval(loss, found.weights)
        table[member.name] = {
            "nll": _mean(loss, found.weights),
            "low": nll_low,
            "high": nll_high,
            "share": float(share),
            "minus_chosen": _mean(loss - taken, found.weights),
            "minus_chosen_low": low,
            "minus_chosen_high": high,
        }
    return table


def too_few(kept: Sequence[Member], found: HeldOut) -> str | None:
    """Says so where the first candidate and the best of the others cannot be told apart, and could differ by much."""
    if len(kept) < 2:
        return None
    other = 1 + int(np.argmin(found.mean()[1:]))
    low, high = interval(found.losses[other] - found.losses[0], found.weights)
    if low is None or high is None or not low < 0 < high or high - low < 0.01:
        return None
    return (
        f"{len(found.rows)} rows are too few to choose: {kept[other].name} minus {kept[0].name} may be anything from "
        f"{low:+.3f} to {high:+.3f} nats, so what was taken leans on what is simple"
    )


def interval(values: Vector, weights: Vector) -> tuple[float | None, float | None]:
    mean = _mean(values, weights)
    effective = float(weights.sum() ** 2 / np.dot(weights, weights))
    variance = float((weights**2) @ (values - mean) ** 2) / float(weights.sum()) ** 2 * effective
    variance *= effective / max(effective - 1.0, 1.0)
    return mean_interval(mean, variance, effective)


def _mean(values: Vector, weights: Vector) -> float:
    return float(np.dot(weights, values) / weights.sum())
