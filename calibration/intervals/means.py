"""95 % intervals of shares and of means of rows.

Shares (accuracy): Wilson. Means (NLL, Brier): mean +- t s / sqrt(n). Both take the effective number of rows where rows
are weighted. Differences of two shares of the same rows: Agresti and Min (2005).
"""

from __future__ import annotations

import numpy as np

Z95 = 1.959963984540054


def share_interval(share: float, rows: float) -> tuple[float, float]:
    """Wilson's interval of a share of `rows` (effective) rows."""
    z2 = Z95**2
    centre = (share + z2 / (2 * rows)) / (1 + z2 / rows)
    half = Z95 / (1 + z2 / rows) * np.sqrt(share * (1 - share) / rows + z2 / (4 * rows * rows))
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
