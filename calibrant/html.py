"""What notebooks show of our objects: a plain table, with every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", below: str = "") -> str:
    """A table as HTML; texts to the left in the first column, to the right in the others."""

    def line(cells: Sequence[object], tag: str) -> str:
        side = ("left", *["right"] * (len(cells) - 1))
        return "".join(
            f'<{tag} style="text-align:{s}">{escape(str(c))}</{tag}>' for c, s in zip(cells, side, strict=True)
        )

    head = f"<thead><tr>{line(headers, 'th')}</tr></thead>" if any(headers) else ""
    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    above = f"<p><b>{escape(title)}</b></p>" if title else ""
    under = f"<p>{escape(below)}</p>" if below else ""
    return f"<div>{above}<table>{head}<tbody>{body}</tbody></table>{under}</div>"


def few(names: Sequence[str], most: int = 6) -> str:
    """The first of many names."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
