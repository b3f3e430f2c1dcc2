"""What a remedy for all rows leaves of the classes and groups that were off by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.softmax import softmax
from calibrant.calibration.verdict.case import Case, JudgedRows, Matrix
from calibrant.calibration.verdict.causes.excess import Excess
from calibrant.calibration.verdict.verdict import Cause
from calibrant.calibration.verdict.words import figure

_ALPHA = 0.01
_NAMED = 2


def left_off(case: Case, causes: Sequence[Cause], rows: JudgedRows, after: Matrix, *, margin: float) -> str | None:
    """Which of the classes and groups that the causes name are then still off by more than the margin, in words."""
    claims = softmax(after)
    predicted = claims.argmax(axis=1)
    confidence, correct = claims.max(axis=1), predicted == rows.labels
    left = []
    for name, chosen in _named(case, causes, rows, predicted):
        if not chosen.any():
            continue
        excess = Excess.of_rows(confidence[chosen], correct[chosen])
        if excess.p < _ALPHA and abs(excess.gap) > margin:
            left.append((name, excess.gap))
    if not left:
        return None
    said = ", ".join(f"{name} claims {figure(abs(gap))} {'more' if gap > 0 else 'less'}" for name, gap in left[:_NAMED])
    more = f", and {len(left) - _NAMED} more are off" if len(left) > _NAMED else ""
    return f"Left then: {said}{more}; let a person check {'it' if len(left) == 1 else 'them'}."


def _named(
    case: Case, causes: Sequence[Cause], rows: JudgedRows, predicted: NDArray[np.intp]
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    names = [case.name(k) for k in range(case.statistics.classes)]
    for cause in causes:
        if cause.kind not in ("class", "group"):
            continue
        name, column = cause.evidence["name"], cause.evidence.get("column")
        if column is None:
            members = [names.index(name)] if cause.kind == "class" else list(case.groups[name])
            yield f'"{name}"', np.isin(predicted, members)
        elif column in rows.groups:
            values = ["" if value is None else str(value) for value in rows.groups[column]]
            yield f'{column} "{name}"', np.array(values, dtype=object) == name
