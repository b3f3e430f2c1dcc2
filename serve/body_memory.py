"""Memory for large bodies, used again and again.

To ask the kernel for 60 MB and to give them back held the event loop up for some 40 ms each, page by page; huge pages
are no way out, as one takes 4 ms to clear. So what a body has left is the next one's, and what nobody has asked for in
a while is given back in small parts.
"""

from __future__ import annotations

import contextlib
import mmap
import time
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np

LARGE = 2 << 20  # bytes; malloc keeps smaller ones at hand itself
MOST_KEPT = 128 << 20  # bytes that no body has
IDLE_SECONDS = 5.0
GIVEN_BACK = 2 << 20  # bytes at a time
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


@dataclass(eq=False)
class _Block:
    memory: mmap.mmap
    used: int = 0  # bytes from its beginning that may hold something
    since: float = 0.0  # free
    lent: Any = field(default=None, repr=False)


class BodyMemory:
    """Blocks of one process, those of bodies and some that are free."""

    def __init__(self) -> None:
        self._free: list[_Block] = []
        self._lent: set[_Block] = set()  # else nobody would hold those whose end is waited for

    def take(self, size: int) -> memoryview:
        """Bytes with anything in them, on an address that is a multiple of 16; free again when nobody holds a part."""
        if size < LARGE:
            return np.empty(size, np.uint8).data
        block = self._fitting(size)
        block.used = max(block.used, size)
        array = np.frombuffer(block.memory, np.uint8, size)
        # Called by whichever thread lets go of the last part.
        block.lent = weakref.ref(array, lambda _: self._back(block))
        self._lent.add(block)
        return array.data

    def sweep(self, now: float | None = None) -> None:
        """Gives a part back of what has been free for long; called a few times a second."""
        now = time.monotonic() if now is None else now
        for block in list(self._free):
            if now - block.since > IDLE_SECONDS and self._is_ours(block):
                start = max(0, block.used - GIVEN_BACK) // mmap.PAGESIZE * mmap.PAGESIZE
                if start and hasattr(mmap, "MADV_DONTNEED"):
                    block.memory.madvise(mmap.MADV_DONTNEED, start, block.used - start)
                    block.used = start
                    self._free.append(block)
                return

    @property
    def kept(self) -> int:
        """Bytes that no body has."""
        return sum(block.used for block in list(self._free))

    def _fitting(self, size: int) -> _Block:
        """The smallest that is large enough and holds at most twice as much: small bodies keep no large ones."""
        free = (b for b in list(self._free) if len(b.memory) >= size and b.used <= 2 * size)
        for block in sorted(free, key=lambda b: (len(b.memory), -b.used)):
            if self._is_ours(block):
                return block
        return _Block(_mapped(size))

    def _is_ours(self, block: _Block) -> bool:
        """Whether no other thread has taken it before."""
        try:
            self._free.remove(block)
        except ValueError:
            return False
        return True

    def _back(self, block: _Block) -> None:
        self._lent.discard(block)
        if self.kept + block.used <= MOST_KEPT:
            block.since = time.monotonic()
            self._free.append(block)


def _mapped(size: int) -> mmap.mmap:
    """A multiple of a large size, so that bodies of about one length fit into the same."""
    try:
        memory = mmap.mmap(-1, -(-size // (4 * LARGE)) * 4 * LARGE, **_PRIVATE)
    except OSError as error:
        raise MemoryError(str(error)) from None
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel that has none
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory


BODIES = BodyMemory()
