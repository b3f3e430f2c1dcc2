"""Memory that a pass over a large file used goes back to the system: a dashboard is idle most of the time."""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """What Arrow and the C library keep for the next time. Costs a millisecond or two."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # another C library
        return
