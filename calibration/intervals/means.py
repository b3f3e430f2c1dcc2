"""95 % intervals of shares and of means of rows.

Shares (accuracy): Wilson. Losses (NLL, Brier): a factor, see `loss_interval`. Differences of means: +- t s / sqrt(n).
All take the effective number of rows where rows are weighted. Differences of two shares of the same rows: Agresti and
Min (2005).
"""

from __future__ import annotations

import numpy as np

Z95 = 1.959963984540054


def share_interval(share: float, rows: float, *, z: float = Z95) -> tuple[float, float]:
    """Wilson's interval of a share of `rows` (effective) rows; z: of the normal law, 1.96 for 95 %."""
    z2 = z**2
    centre = (share + z2 / (2 * rows)) / (1 + z2 / rows)
    half = z / (1 + z2 / rows) * np.sqrt(share * (1 - share) / rows + z2 / (4 * rows * rows))
    return float(max(centre - half, 0.0)), float(min(centre + half, 1.0))


def paired_share_interval(gained: float, lost: float, rows: float) -> tuple[float, float]:
    """Interval of a share minus another of the same rows: `gained` rows count only in the first, `lost` in the other.

    Wald's with half a row more in each of the four cells (Agresti and Min 2005): without, rows that nearly all agree
    come to an interval of no width.
    """
    n, up, down = rows + 2.0, gained + 0.5, lost + 0.5
    centre = (up - down) / n
    half = Z95 * float(np.sqrt(max(((up + down) / n - centre**2) / n, 0.0)))
    return max(centre - half, -1.0), min(centre + half, 1.0)


def mean_interval(mean: float, variance: float, rows: float) -> tuple[float, float] | tuple[None, None]:
    """Student's interval of a mean; none from a single row."""
    if rows < 2 or not np.isfinite(mean):
        return None, None
    from scipy.special import stdtrit  # scipy.stats costs 70 MB

    half = float(stdtrit(rows - 1, 0.975)) * float(np.sqrt(max(variance, 0.0) / rows))
    return mean - half, mean + half


_PSEUDO_MEAN, _PSEUDO_SPREAD = 2.0, 10.0  # rows


def loss_interval(
    mean: float, variance: float, rows: float, *, claimed: tuple[float, float], most: float = np.inf
) -> tuple[float, float] | tuple[None, None]:
    """Interval of a mean of losses, which are few, large and never below 0; none from a single row.

    m / f .. m f with x = t s / (m sqrt n), f = 1 + x + x^2 / 2: the scale of logarithms, without its explosion where
    hardly anything is known. `claimed`: mean and variance of the losses if the probabilities were right. Rows that all
    went well say little of what a failure costs, so m is at least what two such rows more would make it, and s^2 what
    ten would. `most` is the largest loss.
    """
    if rows < 2 or not np.isfinite(mean):
        return None, None
    from scipy.special import stdtrit  # scipy.stats costs 70 MB

    centre = max(mean, (rows * mean + _PSEUDO_MEAN * claimed[0]) / (rows + _PSEUDO_MEAN))
    spread = max(variance, (rows * variance + _PSEUDO_SPREAD * claimed[1]) / (rows + _PSEUDO_SPREAD), 0.0)
    if centre <= 0.0:
        return 0.0, 0.0
    x = float(stdtrit(rows - 1, 0.975)) * float(np.sqrt(spread / rows)) / centre
    factor = 1.0 + x + x * x / 2
    return min(centre / factor, mean), min(max(centre * factor, mean), most)
