"""The bytes before a body: heads as they arrive, and what a caller has sent ahead."""

from __future__ import annotations

from calibrant.serve.protocol.errors import BadInput, HeadTooLarge

FIRST = 4096  # bytes
KEPT = 65536  # a longer one is given back with its head


class HeadBuffer:
    """Grows up to the longest head that is taken. Whoever has `free()` may write there until `came()`."""

    __slots__ = ("_bytes", "_scanned", "filled")

    def __init__(self) -> None:
        self._bytes = bytearray(FIRST)
        self.filled = 0
        self._scanned = 0  # up to here there is no end of a head

    def free(self) -> memoryview:
        if self.filled == len(self._bytes):
            self._bytes.extend(bytes(len(self._bytes)))
        return memoryview(self._bytes)[self.filled :]

    def came(self, size: int) -> None:
        self.filled += size

    def newest(self, size: int) -> bytes:
        """What has just been written, where it is no part of a head."""
        return bytes(memoryview(self._bytes)[self.filled : self.filled + size])

    def take(self, longest: int) -> tuple[bytes, bytes] | None:
        """A whole head and what came behind it, once it is there."""
        if self._bytes[0] in b"\r\n":
            self._skip_blank_lines()
        end = self._bytes.find(b"\r\n\r\n", max(0, self._scanned - 3), self.filled)
        if end < 0:
            self._scanned = self.filled
            if self.filled and not 65 <= self._bytes[0] <= 90:  # TLS, say: no end to wait for
                raise BadInput("not an HTTP request")
            if self.filled >= longest:
                raise _too_long(longest)
            return None
        end += 4
        if end > longest:
            raise _too_long(longest)
        head = bytes(memoryview(self._bytes)[:end])
        rest = bytes(memoryview(self._bytes)[end : self.filled])
        self.filled = self._scanned = 0
        if len(self._bytes) > KEPT:
            self._bytes = bytearray(max(FIRST, len(rest)))
        return head, rest

    def put_back(self, rest: bytes) -> None:
        """Bytes of the next request, which came with this one."""
        self._bytes[: len(rest)] = rest  # of the same length: the buffer must not be resized while it is read into
        self.filled = len(rest)

    def drop(self) -> None:
        self._bytes = bytearray()

    def _skip_blank_lines(self) -> None:
        """Before a request they are passed over (RFC 9112, 2.2)."""
        rest = bytes(memoryview(self._bytes)[: self.filled]).lstrip(b"\r\n")
        self._scanned = 0
        self.put_back(rest)


def _too_long(longest: int) -> HeadTooLarge:
    return HeadTooLarge(f"the request's head is longer than {longest} bytes")
