"""One heap for all threads of a server.

glibc gives each thread that asks a heap of its own, so what the loading of a model frees there is of no use to the
loop's requests: 3 to 20 MB for a small model. The parts of this server that allocate much hold Python's lock anyway or
ask the kernel for large blocks.
"""

from __future__ import annotations

import ctypes
import os
import sys

_ARENA_MAX = -8  # <malloc.h>


def share() -> bool:
    """From here on; whether this system's malloc takes the wish. An operator's own MALLOC_ARENA_MAX stays."""
    if sys.platform != "linux" or "MALLOC_ARENA_MAX" in os.environ:
        return False
    try:
        return bool(ctypes.CDLL(None).mallopt(_ARENA_MAX, 1))
    except (OSError, AttributeError):  # musl
        return False
