"""Are the rows of another make-up than those that the confidence is meant for?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrant.calibration.populations import Population, shift_between
from calibrant.calibration.verdict.case import Case
from calibrant.calibration.verdict.verdict import Cause


def shift_cause(meant: Population, found: Population, name: Callable[[int], str], applied: str | None) -> Cause | None:
    """Class shares, by permutation: p < .01 and phi^2 > .02 (see `populations`)."""
    shift = shift_between(meant, found)
    if not shift.clear:
        return None
    most = int(np.abs(found.shares - meant.shares).argmax())
    there, here = float(meant.shares[most]), float(found.shares[most])
    whose = {"calibrator": "its calibrator saw", "correction": "it is corrected for"}.get(applied or "", "in training")
    return Cause(
        "prior-shift",
        f'These rows have other class shares than {whose}: "{name(most)}" makes up {100 * here:.0f} % of them, '
        f"{100 * there:.0f} % there.",
        {"p": shift.p, "effect": shift.effect, "class": name(most), "here": here, "there": there},
    )


def one_class_cause(case: Case) -> Cause | None:
    """Rows of a single class have the class shares of no place of use, and show nothing of the others."""
    present = np.flatnonzero(case.statistics.by_true.rows)
    if len(present) != 1 or case.statistics.classes < 2 or case.evaluation.rows < 2:
        return None
    name, rows = case.name(int(present[0])), case.evaluation.rows
    return Cause(
        "prior-shift",
        f'All {rows:,} rows are of one class, "{name}". How sure it may be where the others occur, they cannot show.',
        {"class": name, "classes": 1, "rows": rows},
    )
