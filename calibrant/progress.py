"""Progress bars, times and plain tables for the command line.

Where no terminal is, a line goes to stderr now and then ("what: 12 of 60 unit"), the first after ten seconds of work,
the next ones ever more rarely. CALIBRANT_PROGRESS in the environment says otherwise: `lines` for two a second, for a
program that follows; `off` for none.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def progress(items: Iterable[T], *, what: str, total: int | None = None, unit: str = "it") -> Iterable[T]:
    """The items, with a bar on stderr that shows only on a terminal and only once the work has taken a second."""
    if _wanted() == "off":
        return items
    if _wanted() == "lines" or not sys.stderr.isatty():
        return _lines(items, what, total, unit)
    from tqdm import tqdm

    bar: Iterable[T] = tqdm(items, desc=what, total=total, unit=unit, delay=1.0, leave=False, dynamic_ncols=True)
    return bar


def bar(*, what: str, total: int | None = None, unit: str = "it") -> Any:
    """A bar to be moved by hand (`update(n)`, `close()`), for work that is not a loop over items."""
    wanted = _wanted()
    if wanted == "lines" or not (wanted == "off" or sys.stderr.isatty()):
        return _Lines(what, total, unit)
    from tqdm import tqdm

    return tqdm(desc=what, total=total, unit=unit, delay=1.0, leave=False, dynamic_ncols=True, disable=wanted == "off")


def _wanted() -> str:
    return os.environ.get("CALIBRANT_PROGRESS", "")


class _Lines:
    """What of tqdm is used, a line every `seconds` at most; in a log after `first` seconds, then ever more rarely."""

    seconds = 0.5
    first, grows = 10.0, 1.5

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done, self._said = 0, time.monotonic()
        self._wait = self.seconds if _wanted() == "lines" else self.first

    def update(self, n: int = 1) -> None:
        self.done += n
        if time.monotonic() - self._said >= self._wait:
            self._said = time.monotonic()
            if _wanted() != "lines":
                self._wait *= self.grows
            of = "" if self.total is None else f" of {self.total:,}"
            print(f"{self.what}: {self.done:,}{of} {self.unit}", file=sys.stderr, flush=True)  # noqa: T201

    def close(self) -> None:
        pass

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lines(items: Iterable[T], what: str, total: int | None, unit: str) -> Iterable[T]:
    shown = _Lines(what, total, unit)
    for item in items:
        yield item
        shown.update()


def spoken(seconds: float) -> str:
    """A time as one says it: 40 s, 12 min, 2.5 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, left: int = 1) -> str:
    """A text table: the first `left` columns flush left, the others flush right."""
    cells = [[str(value) for value in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(headers), *cells]) for i in range(len(headers))]

    def line(values: Sequence[str]) -> str:
        padded = [v.ljust(w) if i < left else v.rjust(w) for i, (v, w) in enumerate(zip(values, widths, strict=True))]
        return "  ".join(padded).rstrip()

    return "\n".join([line(list(headers)), line(["-" * w for w in widths]), *map(line, cells)])
