"""Bytes of a connection, as frames: HTTP/2's first words, heads of frames, and where their payloads go.

Bytes of a message are received where the message will lie, as far as one frame goes; a tensor in it is never copied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from calibrant.serve.grpc import frames as f
from calibrant.serve.grpc.call import Call
from calibrant.serve.grpc.frames import ConnectionFault

log = logging.getLogger(__name__)

MOST_FRAME = 1 << 20  # bytes of a DATA frame
MOST_MORE = 512  # bytes of another frame beyond those of the longest head
BUFFER = 16 << 10  # bytes; what is behind them of a message is received directly
DIRECT = 4 << 10  # bytes that are worth it
STEP = 256 << 10  # bytes of a large message before others' turn
TURNS = 256  # frames and payloads, after which other connections have theirs
_HTTP1 = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PATC")


class FrameReader(asyncio.BufferedProtocol):
    """Reads frames and hands them to what is made of it."""

    def __init__(self, longest_head: int) -> None:
        self._most = longest_head + MOST_MORE  # bytes of a frame that is no DATA
        self._buffer = bytearray(BUFFER)
        self._filled = 0
        self._preface = False  # has come
        self._ended = False  # nothing is read any more
        self._left = self._pad = 0  # bytes of the DATA frame that is coming
        self._call: Call | None = None  # that they belong to
        self._last_frame = False  # of the call
        self._large = 0  # bytes of large messages since the last pause
        self._space: memoryview | None = None  # that bytes are being received into
        self.resting = False  # with frames that have come and not been read

    # ---- of what is made of it

    peer = ""

    def frame(self, kind: int, flags: int, stream: int, payload: memoryview) -> None:
        raise NotImplementedError

    def takes_data(self) -> bool:
        """Whether a DATA frame may come now."""
        raise NotImplementedError

    def data_begins(self, stream: int, size: int, *, ends: bool) -> Call | None:
        """The call that takes the payload of `size` bytes, padding included."""
        raise NotImplementedError

    def data_ended(self, call: Call, *, ends: bool) -> None:
        raise NotImplementedError

    def fail(self, fault: ConnectionFault) -> None:
        raise NotImplementedError

    def rest(self) -> None:
        """Lets other connections have their turn: nothing is received until `go_on` is called, and then `read_on`."""
        raise NotImplementedError

    def read_on(self) -> None:
        raise NotImplementedError

    def pause(self) -> None:
        """Receives nothing for a moment."""
        raise NotImplementedError

    def greet_http1(self) -> None:
        """Answers a caller who takes this for a port of HTTP/1."""
        raise NotImplementedError

    # ---- asyncio's side

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._left >= DIRECT and not self._filled and self._call is not None:
            self._space = self._call.space(min(self._left, STEP) if self._call.is_large else self._left)
            if self._space is not None and len(self._space) >= DIRECT:
                return self._space
        self._space = None
        if self._filled == len(self._buffer):  # a head; larger ones than are taken were refused
            self._buffer = self._buffer + bytes(len(self._buffer))
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended:
            self._filled = 0
            return
        if self._space is None:
            self._filled += nbytes
            if not self.resting:
                self._guarded(self._read)
            return
        self._space = None
        self._left -= nbytes
        if (call := self._call) is not None:
            call.filled(nbytes)
            if call.is_large:
                self._large += nbytes
                if self._large >= STEP:
                    self._large = 0
                    self.pause()
        if not self._left and not self._pad:
            self._guarded(self._end_data)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except ConnectionFault as fault:
            self.fail(fault)
        except Exception:
            log.exception("%s: a connection failed", self.peer)
            self.fail(ConnectionFault(f.INTERNAL_ERROR, "internal error"))

    def go_on(self) -> None:
        """After a rest."""
        self.resting = False
        if not self._ended:
            self._guarded(self._read)
        self.read_on()

    def stop_reading(self) -> None:
        self._ended = True
        self._filled, self._buffer = 0, bytearray(BUFFER)
        self._left = self._pad = 0
        self._call = self._space = None

    # ---- frames

    def _read(self) -> None:
        data, at, end = memoryview(self._buffer), 0, self._filled
        if not self._preface:
            at = self._read_preface(data, end)
            if not self._preface:
                return
        turns = TURNS
        while at < end and not self._ended:
            turns -= 1
            if not turns:
                self.resting = True
                self.rest()
                break
            if self._left or self._pad:
                at += self._take_data(data[at:end])
                continue
            if end - at < f.HEAD_SIZE:
                break
            word, flags, stream = f.HEAD.unpack_from(data, at)
            stream &= f.LAST_STREAM
            size, kind = word >> 8, word & 255
            if kind == f.DATA and self.takes_data():
                if flags & f.PADDED and end - at == f.HEAD_SIZE:
                    break
                at += f.HEAD_SIZE
                at += self._begin_data(flags, stream, size, data[at : at + 1])
                continue
            if size > self._most:
                raise ConnectionFault(f.FRAME_SIZE_ERROR, "a frame is longer than is taken of its kind")
            if end - at < f.HEAD_SIZE + size:
                break
            at += f.HEAD_SIZE
            self.frame(kind, flags, stream, data[at : at + size])
            at += size
        if at and not self._ended:
            self._keep(data[at:end])

    def _keep(self, rest: memoryview) -> None:
        """The part of a frame that has come, for when the rest has."""
        self._filled = len(rest)
        if len(self._buffer) > BUFFER and self._filled <= BUFFER:
            fresh = bytearray(BUFFER)
            fresh[: self._filled] = rest
            self._buffer = fresh
        elif self._filled:
            self._buffer[: self._filled] = bytes(rest)

    def _read_preface(self, data: memoryview, end: int) -> int:
        have = min(end, len(f.PREFACE))
        if data[:have] != f.PREFACE[:have]:
            if bytes(data[:4]) in _HTTP1:
                self.greet_http1()
                return 0
            raise ConnectionFault(f.PROTOCOL_ERROR, "this port speaks HTTP/2")
        if end < len(f.PREFACE):
            return 0
        self._preface = True
        return len(f.PREFACE)

    def _begin_data(self, flags: int, stream: int, size: int, first: memoryview) -> int:
        """The head of a DATA frame; the number of bytes behind it that were taken too."""
        if size > MOST_FRAME:
            raise ConnectionFault(f.FRAME_SIZE_ERROR, "a frame is longer than was agreed")
        padded = 1 if flags & f.PADDED else 0
        pad = first[0] if padded and size else 0
        if padded + pad > size:
            raise ConnectionFault(f.PROTOCOL_ERROR, "more padding than there is frame")
        self._last_frame = bool(flags & f.END_STREAM)
        self._call = self.data_begins(stream, size, ends=self._last_frame)
        self._left, self._pad = size - padded - pad, pad
        if not self._left and not self._pad:
            self._end_data()
        return padded

    def _take_data(self, data: memoryview) -> int:
        """Of the payload and the padding of a DATA frame, what is there."""
        size = min(self._left, len(data))
        if size:
            self._left -= size
            if self._call is not None:
                self._call.came(data[:size])
        pad = min(self._pad, len(data) - size)
        self._pad -= pad
        if not self._left and not self._pad:
            self._end_data()
        return size + pad

    def _end_data(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            self.data_ended(call, ends=self._last_frame)
