"""gRPC's messages out of the bytes of DATA frames, each in memory of its own."""

from __future__ import annotations

import struct
from collections import deque

from calibrant.serve.body_memory import BODIES
from calibrant.serve.protocol.errors import BadInput, Overloaded

PREFIX = struct.Struct(">BI")  # compressed or not, length
EMPTY = memoryview(b"")
_ALIGN = 16
_AT_ONCE = 1 << 20  # bytes of a message for which there is room before any of them has come


class Assembly:
    """Takes bytes as they come; `whole` holds the messages that are complete, and whether each is compressed."""

    __slots__ = ("_at", "_compressed", "_message", "_prefix", "limit", "most", "size", "whole")

    def __init__(self, limit: int, most: int) -> None:
        self.limit, self.most = limit, most  # bytes of a message; whole messages that nobody has taken yet
        self.whole: deque[tuple[bool, memoryview]] = deque()
        self._prefix = b""
        self._message = EMPTY
        self._at = self.size = 0
        self._compressed = False

    @property
    def partial(self) -> bool:
        """Whether a message has begun and not ended."""
        return bool(self.size or self._prefix)

    @property
    def had(self) -> int:
        """Bytes that have come of the message that is coming."""
        return self._at

    def feed(self, data: memoryview) -> None:
        at, end = 0, len(data)
        while at < end:
            if not self.size:
                missing = PREFIX.size - len(self._prefix)
                self._prefix += data[at : at + missing]
                at += missing
                if len(self._prefix) == PREFIX.size:
                    self._begin()
                continue
            space = self.space()
            take = min(len(space), end - at)
            space[:take] = data[at : at + take]
            at += take
            self.filled(take)

    def _begin(self) -> None:
        if len(self.whole) >= self.most:
            raise Overloaded(f"more than {self.most} messages wait for an answer; read the answers first")
        flag, size = PREFIX.unpack(self._prefix)
        self._prefix = b""
        if flag > 1:
            raise BadInput("a message begins with a byte that is neither 0 nor 1")
        if size > self.limit:
            raise Overloaded(f"the message has {size} bytes; at most {self.limit} are taken")
        self._compressed = bool(flag)
        if not size:
            self.whole.append((self._compressed, EMPTY))
            return
        self.size, self._at = size, 0
        self._message = _room(size, min(size, _AT_ONCE))

    def space(self) -> memoryview:
        """Where the next bytes of a message go; whoever writes there says so by `filled`."""
        if self._at == len(self._message) < self.size:  # a long one, of which enough has come to be believed
            larger = _room(self.size, self.size)
            larger[: self._at] = self._message
            self._message = larger
        return self._message[self._at :]

    def filled(self, size: int) -> None:
        self._at += size
        if self._at == self.size:
            self.whole.append((self._compressed, self._message))
            self._message, self.size = EMPTY, 0


def _room(size: int, now: int) -> memoryview:
    """`now` bytes, for a message of `size` that shall end at a multiple of 16: a tensor is its last field, and so
    begins at one too."""
    try:
        raw = BODIES.take(now + _ALIGN)
    except MemoryError:
        raise Overloaded(f"there is no memory for a message of {size} bytes", retry_after=1) from None
    offset = -size % _ALIGN
    return raw[offset : offset + now]
