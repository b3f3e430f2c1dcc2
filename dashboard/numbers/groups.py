"""Which rows a diagram is about: all, those predicted as one class, or as one of the head, medium or tail classes."""

from __future__ import annotations

from dataclasses import dataclass

from calibrant.artifacts.predictions import Source
from calibrant.dashboard.widgets.markdown_escape import isolated
from calibrant.shares import head_medium_tail

ALL = "all"


@dataclass(frozen=True)
class Selection:
    key: str  # as it stands in links: all, head, medium, tail, class-3
    label: str
    classes: tuple[int, ...] | None  # None: all rows


def selections(source: Source) -> tuple[Selection, ...]:
    """All, then the groups where the training prior is known and uneven, then each class."""
    found = [Selection(ALL, "All rows", None)]
    for name, members in head_medium_tail(source.train_prior).items():
        found.append(Selection(name, f"Predicted as a {name} class ({len(members)})", members))
    names = map(isolated, source.class_names)
    return (*found, *(Selection(f"class-{k}", f"Predicted as {name}", (k,)) for k, name in enumerate(names)))
