"""Are the rows of another make-up than those that the confidence is meant for?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrant.calibration.populations import Population, shift_between
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
