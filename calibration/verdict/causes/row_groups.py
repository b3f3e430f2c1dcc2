"""Groups of rows, as one hospital or camera, whose claims are off although those of the other rows are not, or less."""

from __future__ import annotations

import math

from calibrant.calibration.verdict.case import Case
from calibrant.calibration.verdict.causes.excess import Excess
from calibrant.calibration.verdict.causes.parts import elsewhere
from calibrant.calibration.verdict.causes.significance import holm
from calibrant.calibration.verdict.verdict import Cause
from calibrant.calibration.verdict.words import more_or_less, points

_ALPHA = 0.01
_NAMED = 5  # groups


def row_groups_off(case: Case, *, margin: float) -> list[Cause]:
    """Groups of rows that stand out, the clearest first, by the rule for classes (see `parts`).

    A group belongs to the rows, not to what is predicted, so a target prior weighs its rows as all others.
    """
    whole = Excess.of(case.statistics)
    total = case.statistics.rows  # rows weigh one on average
    tested = [Excess.of(group.statistics) for group in case.row_groups]
    found: list[tuple[float, Cause]] = []
    for group, excess, clear in zip(case.row_groups, tested, holm([e.p for e in tested], _ALPHA), strict=True):
        weight = group.weight
        others = total - weight
        if not clear or others < 1e-9 * total or abs(excess.gap) <= margin:
            continue
        rest = (whole.gap * total - excess.gap * weight) / others
        if math.copysign(1, excess.gap) * (excess.gap - rest) <= margin:
            continue
        cause = Cause(
            "group",
            f"On the rows of {group.name} it claims {more_or_less(excess.gap)}, elsewhere {elsewhere(rest)} "
            f"({excess.rows:,} rows; chance explains {points(excess.chance)}).",
            {
                "name": group.value, "column": group.column, "rows": excess.rows, "gap": excess.gap,
                "chance": excess.chance, "p": excess.p, "elsewhere": rest, "share": weight / total,
            },
        )  # fmt: skip
        found.append((abs(excess.gap) / excess.sd if excess.sd > 0 else math.inf, cause))
    return [cause for _, cause in sorted(found, key=lambda each: -each[0])[:_NAMED]]
