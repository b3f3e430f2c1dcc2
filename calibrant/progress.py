"""Progress bars and plain tables for the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def progress(items: Iterable[T], *, what: str, total: int | None = None, unit: str = "it") -> Iterable[T]:
    """The items, with a bar on stderr that shows only on a terminal and only once the work has taken a second."""
    if not sys.stderr.isatty():
        return items
    from tqdm import tqdm

    bar: Iterable[T] = tqdm(items, desc=what, total=total, unit=unit, delay=1.0, leave=False, dynamic_ncols=True)
    return bar


def bar(*, what: str, total: int | None = None, unit: str = "it") -> Any:
    """A bar to be moved by hand (`update(n)`, `close()`), for work that is not a loop over items."""
    from tqdm import tqdm

    return tqdm(
        desc=what, total=total, unit=unit, delay=1.0, leave=False, dynamic_ncols=True, disable=not sys.stderr.isatty()
    )


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, left: int = 1) -> str:
    """A text table: the first `left` columns flush left, the others flush right."""
    cells = [[str(value) for value in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(headers), *cells]) for i in range(len(headers))]

    def line(values: Sequence[str]) -> str:
        padded = [v.ljust(w) if i < left else v.rjust(w) for i, (v, w) in enumerate(zip(values, widths, strict=True))]
        return "  ".join(padded).rstrip()

    return "\n".join([line(list(headers)), line(["-" * w for w in widths]), *map(line, cells)])
