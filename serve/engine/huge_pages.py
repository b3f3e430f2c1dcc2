"""Weights, activations and requests on huge pages: addresses are found faster, and so the network runs faster.

Linux gives programs huge pages on its own only where it is set to `always`; most systems are set to `madvise`, where
they have to be asked for. Asked here for what is already there, once a model is loaded and warmed up (MADV_COLLAPSE,
Linux 6.1), where at least three quarters of a huge page are in use: memory that is touched later, or here and there,
would take two megabytes at a time. Nothing depends on it, so a system that refuses is left alone.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import sys
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)

HUGE = 2 << 20  # on x86-64, and on Arm with pages of 4 KiB
_COLLAPSE = 25  # <asm-generic/mman-common.h>
_PAGES = HUGE // mmap.PAGESIZE


def collapse(maps: Path = Path("/proc/self/maps")) -> int:
    """Moves the private memory of this process onto huge pages; the bytes that lie on them afterwards."""
    if sys.platform != "linux":
        return 0
    try:
        ranges = list(_private(maps.read_text()))
        system = ctypes.CDLL(None)
        madvise, mincore = system.madvise, system.mincore
    except (OSError, AttributeError):
        return 0
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    here = ctypes.create_string_buffer(_PAGES)
    moved = 0
    for low, high in ranges:
        # One by one: a part that holds nothing yet is refused, and would end the call for those behind it.
        for at in range(-(-low // HUGE) * HUGE, high - HUGE + 1, HUGE):
            if not mincore(at, HUGE, here) and sum(b & 1 for b in here.raw) >= 0.75 * _PAGES:
                moved += 0 if madvise(at, HUGE, _COLLAPSE) else HUGE
    log.info("%d MiB on huge pages", moved >> 20)
    return moved


def _private(maps: str) -> Iterator[tuple[int, int]]:
    """Ranges of writable memory that belong to no file."""
    for line in maps.splitlines():
        addresses, rights, _, _, inode, *name = line.split(None, 5)
        if rights == "rw-p" and inode == "0" and (not name or name[0].startswith(("[heap]", "[anon"))):
            low, _, high = addresses.partition("-")
            yield int(low, 16), int(high, 16)
