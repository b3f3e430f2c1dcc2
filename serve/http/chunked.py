"""A body that comes in chunks (RFC 9112, 7.1), with bounds on all of it and not on its content alone.

Differs from what other readers take: lines end in CRLF only, sizes are hexadecimal digits only, and extensions and
trailers, which mean nothing here, may have 16 KiB together.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from calibrant.serve.protocol.errors import BadInput, HeadTooLarge, TooLarge

MOST_EXTRAS = 16 << 10  # bytes of extensions and trailers
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}(?=[ \t]*(;|$))")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00\r\n]*")


class Chunked:
    """`charge` is called with the size of each piece of content and may refuse."""

    def __init__(self, charge: Callable[[int], None], max_body: int) -> None:
        self.body = bytearray()
        self._charge, self._max_body = charge, max_body
        self._unread = bytearray()
        self._left = 0  # of the chunk
        self._ending = False  # its CRLF comes next
        self._last = False  # trailers come next
        self._extras = 0

    def feed(self, data: bytes) -> bytes | None:
        """None while more is to come; once the body is whole, the bytes behind it."""
        unread = self._unread
        unread += data
        while True:
            if self._left:
                piece = unread[: self._left]
                del unread[: len(piece)]
                self._charge(len(piece))
                self.body += piece
                self._left -= len(piece)
                self._ending = True
            if self._left or (self._ending and len(unread) < 2):
                return None
            if self._ending:
                if unread[:2] != b"\r\n":
                    raise BadInput("damaged chunked body (a chunk is longer than its size)")
                del unread[:2]
                self._ending = False
            line = self._line()
            if line is None:
                return None
            if not self._last:
                self._begin(line)
            elif not line:
                return bytes(unread)
            else:
                self._pass(line)

    def _line(self) -> bytes | None:
        end = self._unread.find(b"\n")
        if end < 0:
            if len(self._unread) > MOST_EXTRAS:
                raise HeadTooLarge(f"a line of the chunked body is longer than {MOST_EXTRAS} bytes")
            return None
        line = bytes(self._unread[: end + 1])
        del self._unread[: end + 1]
        if not line.endswith(b"\r\n"):
            raise BadInput("damaged chunked body (a line does not end in CRLF)")
        return line[:-2]

    def _begin(self, line: bytes) -> None:
        """The size of the next chunk; 0 is the last."""
        found = _SIZE.match(line)
        if found is None or b"\r" in line or b"\x00" in line:
            raise BadInput("damaged chunked body (a chunk has no size)")
        self._count(len(line) - found.end())
        self._left = int(found[0], 16)
        self._last = self._left == 0
        if len(self.body) + self._left > self._max_body:
            raise TooLarge(f"the body is larger than the {self._max_body} bytes that are taken")

    def _pass(self, line: bytes) -> None:
        """Over a trailer, which must not change what the head said."""
        if _TRAILER.fullmatch(line) is None:
            raise BadInput("damaged chunked body (a trailer is no header)")
        self._count(len(line) + 2)

    def _count(self, size: int) -> None:
        self._extras += size
        if self._extras > MOST_EXTRAS:
            raise HeadTooLarge(f"extensions and trailers of the chunked body are longer than {MOST_EXTRAS} bytes")
