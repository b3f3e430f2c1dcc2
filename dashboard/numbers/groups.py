"""Which rows a diagram is about: all, those predicted as one class, or as one of the head, medium or tail classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrant.artifacts.predictions import Source

ALL = "all"
_GROUPS = ("head", "medium", "tail")


@dataclass(frozen=True)
class Selection:
    key: str  # as it stands in links: all, head, medium, tail, class-3
    label: str
    classes: tuple[int, ...] | None  # None: all rows


def selections(source: Source) -> tuple[Selection, ...]:
    """All, then the groups where the training prior is known and uneven, then each class."""
    found = [Selection(ALL, "All rows", None)]
    for name, members in class_groups(source).items():
        found.append(Selection(name, f"Predicted as a {name} class ({len(members)})", members))
    found += [Selection(f"class-{k}", f"Predicted as {name}", (k,)) for k, name in enumerate(source.class_names)]
    return tuple(found)


def class_groups(source: Source) -> dict[str, tuple[int, ...]]:
    """Three groups of equally many classes by their share of the training images, ties in order of class.

    As `calibrant head` and `calibrant sweep` divide them. Nothing where all shares are equal or unknown, or where there
    are fewer than three classes.
    """
    prior = source.train_prior
    if prior is None or len(prior) < 3 or max(prior) - min(prior) < 1e-9:
        return {}
    order = np.argsort(-np.asarray(prior), kind="stable")
    first, second = round(len(order) / 3), round(2 * len(order) / 3)
    parts = (order[:first], order[first:second], order[second:])
    return {name: tuple(sorted(int(k) for k in part)) for name, part in zip(_GROUPS, parts, strict=True)}
