"""What can be set of a server: processes, threads of a run, rows of a run."""

from __future__ import annotations

import math
import socket
from dataclasses import dataclass

from calibrant.serve.engine.batch_curve import BATCH_SIZES
from calibrant.serve.processes.layout import Layout


@dataclass(frozen=True)
class Setting:
    """Of one file. `cap`: rows of a run at most."""

    layout: Layout
    cap: int

    def __str__(self) -> str:
        return f"{self.layout}, cap {self.cap}"


def layouts(cores: int, *, first: Layout, gpu: bool = False) -> list[Layout]:
    """`first` is what the server takes by itself. Then all cores for one process, one for each, what lies between by
    powers of two, and one process of one thread, which leaves the other cores to whatever else the machine does.

    On a GPU the runs do not take the cores: one process or two.
    """
    most = 1 if not hasattr(socket, "SO_REUSEPORT") else 2 if gpu else cores
    workers = sorted({1, *(2**k for k in range(1 + int(math.log2(most)))), most} if not gpu else {1, most})
    found = [first, *(Layout(n, max(1, cores // n)) for n in workers)]
    if not gpu:
        found.append(Layout(1, 1))
    return list(dict.fromkeys(found))


def caps_beside(cap: int) -> list[int]:
    """Other caps that are worth a try where `cap` makes the most of a run: less waits less, more may carry more."""
    larger = [n for n in BATCH_SIZES if n > cap][:1]
    return list(dict.fromkeys(n for n in (max(1, cap // 2), *larger, 1) if n != cap))
