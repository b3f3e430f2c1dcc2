"""What one connection sends: answers as far as the caller's windows let them go, the rest when they open again.

What cannot go at once is charged to the room that bodies have, so callers who do not read cost no more than others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from calibrant.serve.grpc import frames as f
from calibrant.serve.grpc import heads
from calibrant.serve.grpc.assembly import PREFIX

Part = bytes | memoryview
_FLUSH = 64 << 10  # bytes, after which the transport is asked whether it takes more
_HEAD_SIZE, _TAIL_SIZE = len(heads.ANSWER), len(heads.OK_TRAILERS)
# HEADERS, then the heads of a DATA frame and of the message in it; and HEADERS behind it.
_OPENING = struct.Struct(f">IBI{_HEAD_SIZE}sIBIBI")
_CLOSING = struct.Struct(f">IBI{_TAIL_SIZE}s")
_HEAD_WORD, _TAIL_WORD = _HEAD_SIZE << 8 | f.HEADERS, _TAIL_SIZE << 8 | f.HEADERS
_LAST = f.END_HEADERS | f.END_STREAM


class Sender(Protocol):
    """A stream that is answered."""

    id: int
    window: int  # what the caller has added to the stream's first window, less what was sent

    def sent(self) -> None:
        """All that was given has gone; called where it had to wait."""


class _Unsent:
    __slots__ = ("parts", "since", "size", "stream", "tail")

    def __init__(self, stream: Sender) -> None:
        self.stream = stream
        self.parts: deque[memoryview] = deque()
        self.size = 0
        self.tail = b""  # the frame that ends the stream
        self.since = time.monotonic()


class Outflow:
    def __init__(self, transport: Any, fd: int, take: Callable[[int], None], give_back: Callable[[int], None]) -> None:
        """`fd`: of a plain socket, -1 where there is none; `take` and `give_back`: the room."""
        self.window = self.initial = f.DEFAULT_WINDOW
        self.frame_size = f.SMALLEST_FRAME
        self.paused = False
        self.data_frames = 0
        self._transport, self._fd = transport, fd
        self._take, self._give_back = take, give_back
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes] = []
        self._size = 0
        self._waiting: dict[int, _Unsent] = {}

    # ---- answers

    def answer(self, stream: Sender, parts: Sequence[Part], size: int) -> bool:
        """Head, one message and the end of a call; whether it has all gone."""
        body = size + PREFIX.size
        id_ = stream.id
        if self._fits(stream, body):
            self.window -= body
            self.data_frames += 1
            opening = _OPENING.pack(_HEAD_WORD, f.END_HEADERS, id_, heads.ANSWER, body << 8 | f.DATA, 0, id_, 0, size)
            self.put(b"".join((opening, *parts, _CLOSING.pack(_TAIL_WORD, _LAST, id_, heads.OK_TRAILERS))))
            return True
        self._take(body)  # first of all, for it may be refused
        self.head(stream)
        self._queue(stream, parts, size)
        return self.end(stream, heads.OK_TRAILERS)

    def head(self, stream: Sender) -> None:
        self.put(f.frame(f.HEADERS, f.END_HEADERS, stream.id, heads.ANSWER))

    def message(self, stream: Sender, parts: Sequence[Part], size: int) -> bool:
        """One message of a stream of them; whether it has gone."""
        body = size + PREFIX.size
        if stream.id not in self._waiting and self._fits(stream, body):
            self.window -= body
            stream.window -= body
            self.data_frames += 1
            self.put(b"".join((f.HEAD.pack(body << 8 | f.DATA, 0, stream.id), PREFIX.pack(0, size), *parts)))
            return True
        self._take(body)
        self._queue(stream, parts, size)
        self.pump()
        return stream.id not in self._waiting

    def end(self, stream: Sender, block: bytes) -> bool:
        """The trailers, behind what is still to go."""
        tail = f.frame(f.HEADERS, _LAST, stream.id, block)
        unsent = self._waiting.get(stream.id)
        if unsent is None:
            self.put(tail)
            return True
        unsent.tail = tail
        self.pump()
        return stream.id not in self._waiting

    def refuse(self, stream: Sender, code: int, message: str, *, headed: bool) -> None:
        """The end of a call that is not OK; what has not gone yet is of no use any more."""
        self.forget(stream)
        block = heads.trailers(code, message) if headed else heads.trailers_only(code, message)
        self.put(f.frame(f.HEADERS, _LAST, stream.id, block))

    def _fits(self, stream: Sender, body: int) -> bool:
        return body <= min(self.window, self.initial + stream.window, self.frame_size) and not self.paused

    # ---- what has to wait

    def _queue(self, stream: Sender, parts: Sequence[Part], size: int) -> None:
        unsent = self._waiting.get(stream.id)
        if unsent is None:
            unsent = self._waiting[stream.id] = _Unsent(stream)
        unsent.parts.append(memoryview(PREFIX.pack(0, size)))
        unsent.parts.extend(memoryview(part) for part in parts if len(part))
        unsent.size += size + PREFIX.size

    def waits(self, stream: Sender) -> bool:
        return stream.id in self._waiting

    def forget(self, stream: Sender) -> None:
        unsent = self._waiting.pop(stream.id, None)
        if unsent is not None:
            self._give_back(unsent.size)

    def forget_all(self) -> None:
        for unsent in self._waiting.values():
            self._give_back(unsent.size)
        self._waiting.clear()
        self._out.clear()

    def pump(self) -> None:
        """As many frames as the windows let through, of each stream in its turn."""
        moved = bool(self._waiting)
        while moved and not self.paused:
            moved = False
            for unsent in list(self._waiting.values()):
                moved |= self._send_frame(unsent)

    def _send_frame(self, unsent: _Unsent) -> bool:
        stream = unsent.stream
        if self._waiting.get(stream.id) is not unsent:
            return False
        take = min(unsent.size, self.window, self.initial + stream.window, self.frame_size)
        if take <= 0 or self.paused:
            return False
        self.window -= take
        stream.window -= take
        self.data_frames += 1
        unsent.size -= take
        unsent.since = time.monotonic()
        self.put(f.HEAD.pack(take << 8 | f.DATA, 0, stream.id) + _cut(unsent.parts, take))
        self._give_back(take)
        if not unsent.size:
            del self._waiting[stream.id]
            if unsent.tail:
                self.put(unsent.tail)
            stream.sent()
        return True

    def stuck(self, before: float) -> list[Sender]:
        """Streams whose caller has taken nothing since then."""
        return [unsent.stream for unsent in self._waiting.values() if unsent.since < before]

    # ---- the socket

    def put(self, data: bytes) -> None:
        """Goes out with whatever else this round of the loop brings."""
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(data)
        self._size += len(data)
        if self._size > _FLUSH:
            self.flush()

    def flush(self) -> None:
        """At once where the socket takes it: uvloop's write would wait until the loop has nothing else to do."""
        out, self._out, self._size = self._out, [], 0
        if not out or self._transport.is_closing():
            return
        data: Part = out[0] if len(out) == 1 else b"".join(out)
        if self._fd >= 0 and not self._transport.get_write_buffer_size():
            with contextlib.suppress(OSError):  # a full buffer, a caller that is gone: the transport sees to those
                data = memoryview(data)[os.write(self._fd, data) :]
        if len(data):
            self._transport.write(data)


def _cut(parts: deque[memoryview], size: int) -> bytes:
    """The first bytes of what is left."""
    taken: list[memoryview] = []
    while size:
        part = parts.popleft()
        if len(part) > size:
            parts.appendleft(part[size:])
            part = part[:size]
        taken.append(part)
        size -= len(part)
    return b"".join(taken)
