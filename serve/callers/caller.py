"""One caller of a load: a connection that sends the same request again and again, and reads what any server answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


class Caller(asyncio.Protocol):
    """`answered` gets the caller, the status (0: no whole answer came) and the body.

    A connection that the server closes, after each answer or in its midst, is opened again for the next request.
    """

    def __init__(
        self,
        request: bytes,
        connect: Callable[[Caller], Awaitable[Any]],
        answered: Callable[[Caller, int, bytes], None],
    ) -> None:
        self.request, self.answered = request, answered
        self.sent = 0.0
        self.busy = False
        self._connect = connect
        self._buffer = bytearray()
        self._transport: Any = None
        self._again: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._buffer.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self.busy and not self._read(ended=True):
            self._finish(0, b"the connection was closed")

    def send(self, at: float) -> None:
        self.sent, self.busy = at, True
        if self._transport is not None:
            self._transport.write(self.request)
        else:
            self._again = asyncio.ensure_future(self._send_anew())

    async def _send_anew(self) -> None:
        try:
            await self._connect(self)
        except OSError as error:
            await asyncio.sleep(0.05)  # not as fast as a loop can ask
            self._finish(0, f"no connection ({error.strerror or error})".encode())
            return
        self._transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            self._read(ended=False)
        except ValueError:
            self._drop()
            self._finish(0, b"this is no HTTP answer: " + bytes(self._buffer[:60]))

    def _read(self, *, ended: bool) -> bool:
        """Takes a whole answer from the buffer, if it is there."""
        while True:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return False
            head = bytes(self._buffer[:end]).lower()
            if head[9:10] != b"1":
                break
            del self._buffer[: end + 4]  # 100 Continue and the like
        body, stop = self._body(head, end + 4, ended)
        if body is None:
            return False
        del self._buffer[:stop]
        if b"\r\nconnection: close" in head or (head.startswith(b"http/1.0") and b"keep-alive" not in head):
            self._drop()
        self._finish(int(head[9:12]) if head[9:12].isdigit() else 0, body)
        return True

    def _body(self, head: bytes, start: int, ended: bool) -> tuple[bytes | None, int]:
        """The body behind a head (None: not all of it is there), and where it ends."""
        at = head.find(b"\r\ncontent-length:")
        if at >= 0:
            stop = start + int(head[at + 17 :].split(b"\r\n", 1)[0])
            return (bytes(self._buffer[start:stop]), stop) if len(self._buffer) >= stop else (None, 0)
        if b"\r\ntransfer-encoding:" in head:
            return _unchunked(self._buffer, start)
        if head[9:12] in (b"204", b"304"):
            return b"", start
        return (bytes(self._buffer[start:]), len(self._buffer)) if ended else (None, 0)

    def _drop(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.set_protocol(asyncio.Protocol())  # its end is no news to us
            transport.close()

    def _finish(self, status: int, body: bytes) -> None:
        self.busy = False
        self.answered(self, status, body)

    def close(self) -> None:
        self.busy = False
        if self._again is not None:
            self._again.cancel()
        if self._transport is not None:
            self._transport.abort()


def _unchunked(data: bytearray, at: int) -> tuple[bytes | None, int]:
    parts = []
    while (end := data.find(b"\r\n", at)) >= 0:
        size = int(bytes(data[at:end]).partition(b";")[0], 16)
        if size:
            parts.append(bytes(data[end + 2 : end + 2 + size]))
            at = end + 4 + size
            continue
        if data[end : end + 4] == b"\r\n\r\n":
            return b"".join(parts), end + 4
        trailers = data.find(b"\r\n\r\n", end)
        return (b"".join(parts), trailers + 4) if trailers >= 0 else (None, 0)
    return None, 0
