"""Single classes and groups of them whose claims are off although those of the others are not, or not as much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrant.calibration.verdict.case import Case
from calibrant.calibration.verdict.causes.excess import Excess
from calibrant.calibration.verdict.causes.significance import holm
from calibrant.calibration.verdict.verdict import Cause
from calibrant.calibration.verdict.words import more_or_less, points

_ALPHA = 0.01
_FEWEST = 10  # rows predicted as a class: below, nothing is said of it
_NAMED = 5  # classes
_MOST = 0.75  # of a group's gap: what makes a single class the cause of it


@dataclass(frozen=True)
class Part:
    """The rows predicted as one class, or as one of a group."""

    cause: Cause
    members: frozenset[int]
    strength: float  # |z|


def parts_off(case: Case, *, margin: float) -> list[Part]:
    """Classes and groups that stand out, the clearest first.

    Claims against hits of the rows predicted as the class, Holm over the classes that have ten such rows. Named are
    those off by more than the margin, and by as much more than the other rows, if there are others.
    Differs: under a target prior none is named, since statistics by predicted class carry no weights.
    """
    if case.statistics.class_weights is not None:
        return []
    whole = Excess.of(case.statistics)
    classes = [(case.name(k), (k,)) for k in range(case.statistics.classes) if case.statistics.predicted_rows[k]]
    groups = [(name, tuple(members)) for name, members in case.groups.items() if len(set(members)) > 1]
    single, joint = (_off(case, kind, these, whole, margin) for kind, these in (("class", classes), ("group", groups)))
    found = [*single[:_NAMED], *(group for group in joint if not any(_is_all_of(part, group) for part in single))]
    return sorted(found, key=lambda part: -part.strength)


def _is_all_of(part: Part, group: Part) -> bool:
    """Does one class make up most of what a group is off by?"""
    total, own = (p.cause.evidence["gap"] * p.cause.evidence["rows"] for p in (group, part))
    return part.members <= group.members and bool(own / total > _MOST)


def _off(
    case: Case, kind: str, entries: Sequence[tuple[str, Sequence[int]]], whole: Excess, margin: float
) -> list[Part]:
    filled = [(name, m) for name, m in entries if case.statistics.predicted_rows[list(m)].sum() >= _FEWEST]
    tested = [Excess.of_cells(case.statistics.predicted_class_cells(m)) for _, m in filled]
    found = []
    for (name, members), excess, clear in zip(filled, tested, holm([e.p for e in tested], _ALPHA), strict=True):
        others = whole.rows - excess.rows
        if not clear or not others or abs(excess.gap) <= margin:
            continue
        rest = (whole.gap * whole.rows - excess.gap * excess.rows) / others
        if math.copysign(1, excess.gap) * (excess.gap - rest) <= margin:
            continue
        other = _mostly(case, members[0]) if kind == "class" else None
        what = f'where it says "{name}"' if kind == "class" else f'on the group "{name}"'
        cause = Cause(
            "class" if kind == "class" else "group",
            f"{what[0].upper()}{what[1:]} it claims {more_or_less(excess.gap)}, elsewhere {elsewhere(rest)} "
            f"({excess.rows:,} rows; chance explains {points(excess.chance)})."
            + ("" if other is None else f' Most of them are labelled "{other}": are the classes in the right order?'),
            {
                "name": name, "rows": excess.rows, "gap": excess.gap, "chance": excess.chance, "p": excess.p,
                "elsewhere": rest, **({} if other is None else {"labelled": other}),
            },
        )  # fmt: skip
        z = abs(excess.gap) / excess.sd if excess.sd > 0 else float("inf")
        found.append(Part(cause, frozenset(members), z))
    return sorted(found, key=lambda part: -part.strength)


def _mostly(case: Case, k: int) -> str | None:
    """Another class that more than half of the rows predicted as class k are labelled with."""
    if case.rows is None:
        return None
    rows = case.rows()
    labels = rows.labels[rows.judged.argmax(axis=1) == k]
    if len(labels) < _FEWEST:
        return None
    counts = np.bincount(labels, minlength=case.statistics.classes)
    most = int(counts.argmax())
    return case.name(most) if most != k and counts[most] > len(labels) / 2 else None


def elsewhere(gap: float) -> str:
    """How far the other rows are off."""
    if abs(gap) < 0.01:
        return "it is off by less than a point"
    return f"{points(abs(gap))} {'more' if gap > 0 else 'less'}"
