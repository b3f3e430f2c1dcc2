"""How predictions look in a notebook: what they are, and their first rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrant import html

if TYPE_CHECKING:
    from calibrant.artifacts.predictions.rows import Predictions

_FIRST = 5
_CLASSES = 6


def line(p: Predictions) -> str:
    what = "labels, independent" if p.source.independent else "classes"
    return f"{len(p):,} rows, {_known(p):,} with a label, {len(p.class_names)} {what}: {html.few(p.class_names)}"


def as_html(p: Predictions) -> str:
    names = p.class_names[:_CLASSES]
    more = ("...",) if len(p.class_names) > _CLASSES else ()
    rows = [
        (p.ids[i], _label(p, i), *(f"{z:.3f}" for z in p.logits[i, :_CLASSES]), *more)
        for i in range(min(_FIRST, len(p)))
    ]
    left = len(p) - len(rows)
    below = f"and {left:,} more rows; the numbers are logits" if left else "the numbers are logits"
    return html.table(("id", "label", *names, *more), rows, title=line(p), below=below)


def _known(p: Predictions) -> int:
    known = p.labels >= 0 if p.present is None else (p.present >= 0).any(axis=1)
    return int(known.sum())


def _label(p: Predictions, i: int) -> str:
    if p.present is not None:
        return ", ".join(name for name, k in zip(p.class_names, p.present[i], strict=True) if k == 1)
    return "" if p.labels[i] < 0 else p.class_names[int(p.labels[i])]
