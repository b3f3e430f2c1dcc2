"""What this process has of memory, as Linux counts it; None elsewhere."""

from __future__ import annotations

import os


def reserved_bytes() -> int | None:
    """Of addresses, whether anything lies there or not."""
    return _pages(0)


def resident_bytes() -> int | None:
    return _pages(1)


def _pages(column: int) -> int | None:
    try:
        with open("/proc/self/statm") as stream:
            return int(stream.read().split()[column]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
