"""How many more labels would tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calibrant.calibration.verdict.labels_needed import Claims, labels_needed
from calibrant.calibration.verdict.verdict import Remedy
from calibrant.calibration.verdict.words import figure, points

if TYPE_CHECKING:
    from calibrant.calibration.verdict.case import Case


def more_labels(case: Case, *, margin: float) -> Remedy:
    """Rows until an error of twice the margin is told from one of the margin."""
    claims = Claims.of_bins(case.statistics.bins(case.evaluation.bins))
    return labels_remedy(
        claims, case.evaluation.effective_rows, case.evaluation.rows, margin=margin, command=case.labels_call
    )


def labels_remedy(
    claims: Claims, effective_rows: float, rows: int, *, margin: float, command: str | None = None
) -> Remedy:
    """`effective_rows`: what the rows are worth where they are weighted."""
    worth = effective_rows / rows
    needed = int(np.ceil(labels_needed(claims, error=2 * margin, beyond=margin) / worth))
    narrow = int(np.ceil(labels_needed(claims, width=margin) / worth))
    needed = max(needed, narrow)
    more = max(needed - rows, 0)
    text = (
        f"Label about {more:,} more rows: {needed:,} tell an error of {points(2 * margin)} from one of "
        f"{figure(margin)}, and know it to within {points(margin)}."
    )
    return Remedy("labels", command, text, {"rows": needed, "more": more})
