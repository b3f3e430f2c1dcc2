"""HTTP/2 for gRPC on one event loop: frames in, calls out of them, and nothing that a caller does may harm another."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from calibrant.serve.grpc import frames as f
from calibrant.serve.grpc.call import STATUS, Call, TurnedDown
from calibrant.serve.grpc.control_frames import CONTROL
from calibrant.serve.grpc.credit import OF_A_CONTINUATION, OF_A_RESET, OF_A_WORD, OF_AN_EMPTY_FRAME, Credit
from calibrant.serve.grpc.frame_reader import MOST_FRAME, FrameReader
from calibrant.serve.grpc.frames import ConnectionFault, StreamFault
from calibrant.serve.grpc.heads import CallHead, HeadReader, MalformedHead, no_call, trailers_only
from calibrant.serve.grpc.outflow import Outflow
from calibrant.serve.grpc.stream_call import StreamCall
from calibrant.serve.protocol.errors import HeadTooLarge, NotReady, Refusal

if TYPE_CHECKING:
    from calibrant.serve.grpc.server import Front

log = logging.getLogger(__name__)

MOST_CALLS = 1024  # at once on one connection
TOP_UP = f.FIRST_WINDOW // 2  # bytes of a connection, or of a call, after which its window is opened again
USUAL_HEAD = 8 << 10  # bytes, which are all that gRPC's own servers take
LINGER_SECONDS, LAST_CALLS_SECONDS = 2.0, 0.5
IDLE = 8  # times as long as a connection of HTTP, for callers do not open another at once
NEVER = float("inf")


class Http2Connection(FrameReader):
    """One caller's connection, with any number of calls at once."""

    def __init__(self, front: Front) -> None:
        super().__init__(front.limits.max_header)
        self.front, self.limits = front, front.limits
        self.calls: dict[int, Call] = {}
        self.credit = Credit()
        self.last = 0  # stream that was opened
        self.out: Outflow
        self._transport: Any = None
        self._whose = ""  # who has its share of the room
        self._settled = False  # its SETTINGS have come
        self._last_calls = NEVER  # until then calls are taken
        self._final = False  # none are any more
        self._block: tuple[int, int, bytearray] | None = None  # stream, flags and bytes of a head that is coming
        self._heads = HeadReader(self.limits.max_header)
        self._window = f.DEFAULT_WINDOW + f.FIRST_WINDOW  # bytes that the caller may still send
        self._unacknowledged = 0  # that came since that was last raised
        self._since = time.monotonic()  # when the last call ended
        self.deadline = self._since + self.limits.header_seconds

    # ---- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        front, fd = self.front, -1
        front.accepted += 1
        front.open.add(self)
        peer = transport.get_extra_info("peername")
        if transport.get_extra_info("sslcontext") is None and sys.platform != "win32":
            fd = transport.get_extra_info("socket").fileno()
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) >= 2 else ""
        self._whose = front.room.whose(peer[0]) if self.peer else ""
        self.out = Outflow(transport, fd, self.take, self.give_back)
        self.out.put(
            f.settings(
                {
                    f.MAX_CONCURRENT_STREAMS: MOST_CALLS,
                    f.INITIAL_WINDOW_SIZE: f.FIRST_WINDOW,
                    f.MAX_FRAME_SIZE: MOST_FRAME,
                    f.MAX_HEADER_LIST_SIZE: self.limits.max_header,
                }
            )
            + f.window_update(0, f.FIRST_WINDOW)
        )
        if front.draining:
            self.drain()
        try:
            front.room.enter(self._whose)  # which counts it in any case
        except Refusal as refusal:
            front.refused += 1
            self.fail(ConnectionFault(f.ENHANCE_YOUR_CALM, refusal.message))

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self.front.open.discard(self)
        self.out.forget_all()
        for call in list(self.calls.values()):
            call.cancel()
        self.front.room.leave(self._whose)
        self.stop_reading()
        self._buffer = bytearray()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        """A caller that does not read is not read from either, but for a while only."""
        self.out.paused = True
        self.deadline = time.monotonic() + self.limits.write_seconds
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.out.paused = False
        if not self._ended:
            whole = self._settled and self._block is None
            self.deadline = NEVER if whole else time.monotonic() + self.limits.header_seconds
            self.read_on()
            self.out.pump()

    def rest(self) -> None:
        self._transport.pause_reading()
        asyncio.get_running_loop().call_soon(self.go_on)

    def read_on(self) -> None:
        if not (self.out.paused or self.resting or self._transport is None or self._transport.is_closing()):
            self._transport.resume_reading()

    def pause(self) -> None:
        if self._transport.is_closing():
            return
        self._transport.pause_reading()
        asyncio.get_running_loop().call_later(self.front.room.pause(), self.read_on)

    # ---- frames

    def frame(self, kind: int, flags: int, stream: int, payload: memoryview) -> None:
        if self._block is not None and (kind != f.CONTINUATION or stream != self._block[0]):
            raise ConnectionFault(f.PROTOCOL_ERROR, "a head is not continued")
        if not self._settled:
            if kind != f.SETTINGS or flags & f.ACK:
                raise ConnectionFault(f.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self._settled, self.deadline = True, NEVER
        try:
            if kind == f.HEADERS:
                self._on_headers(flags, stream, payload)
            elif kind == f.CONTINUATION:
                self._on_continuation(flags, stream, payload)
            elif kind in CONTROL:
                CONTROL[kind](self, flags, stream, payload)
            else:
                if kind in (f.DATA, f.PUSH_PROMISE):
                    raise ConnectionFault(f.PROTOCOL_ERROR, "a frame that nobody sends here")
                self.credit.spend(OF_A_WORD, self.out)  # of an extension: to be ignored
        except StreamFault as fault:
            self.credit.spend(OF_A_RESET, self.out)
            self.out.put(f.reset(fault.stream, fault.code))

    def takes_data(self) -> bool:
        return self._settled and self._block is None

    def data_begins(self, stream: int, size: int, *, ends: bool) -> Call | None:
        if not stream or stream > self.last:
            raise ConnectionFault(f.PROTOCOL_ERROR, "DATA of a stream that is not open")
        call = self.calls.get(stream)
        if call is None or (not size and not ends):  # of a call that is over, say: our word of it is on its way
            self.credit.spend(OF_AN_EMPTY_FRAME if not size else 1, self.out)
        self._window -= size
        if self._window < 0:
            raise ConnectionFault(f.FLOW_CONTROL_ERROR, "more bytes than the connection's window holds")
        self._unacknowledged += size
        if self._unacknowledged >= TOP_UP:
            self.out.put(f.window_update(0, self._unacknowledged))
            self._window += self._unacknowledged
            self._unacknowledged = 0
        return call if call is None or self._may_send(call, size) else None

    def data_ended(self, call: Call, *, ends: bool) -> None:
        if ends:
            call.end()
        else:
            self.open_window(call)

    def _may_send(self, call: Call, size: int) -> bool:
        """Whether a call takes these bytes; it ends where they may not come."""
        call.granted -= size
        call.unacknowledged += size
        if call.ended or call.granted < 0:
            self.credit.spend(OF_A_RESET, self.out)
            call.cancel()
            self.out.put(f.reset(call.id, f.FLOW_CONTROL_ERROR if call.granted < 0 else f.STREAM_CLOSED))
            return False
        return True

    def open_window(self, call: Call) -> None:
        """So that the caller can go on."""
        if call.unacknowledged >= TOP_UP and call.wants_more:
            self.out.put(f.window_update(call.id, call.unacknowledged))
            call.granted += call.unacknowledged
            call.unacknowledged = 0

    # ---- heads

    def _on_headers(self, flags: int, stream: int, payload: memoryview) -> None:
        if not stream & 1:
            raise ConnectionFault(f.PROTOCOL_ERROR, "a caller opens streams of odd numbers")
        block = f.unpadded(payload, flags) if flags & (f.PADDED | f.WITH_PRIORITY) else payload
        if flags & f.END_HEADERS:
            self._open(stream, bytes(block), bool(flags & f.END_STREAM))
        else:
            self._block = (stream, flags, bytearray(block))
            self.deadline = time.monotonic() + self.limits.header_seconds

    def _on_continuation(self, flags: int, stream: int, payload: memoryview) -> None:
        if self._block is None:
            raise ConnectionFault(f.PROTOCOL_ERROR, "CONTINUATION of nothing")
        self.credit.spend(OF_A_CONTINUATION, self.out)
        _, first, block = self._block
        block += payload
        if len(block) > self.limits.max_header:
            raise ConnectionFault(f.ENHANCE_YOUR_CALM, "the head of a call is too long")
        if flags & f.END_HEADERS:
            self._block, self.deadline = None, NEVER
            self._open(stream, bytes(block), bool(first & f.END_STREAM))

    def _open(self, stream: int, block: bytes, ended: bool) -> None:
        call = self.calls.get(stream)
        if call is not None:
            self._trailers(call, block, ended)
            return
        if stream <= self.last:  # trailers of a call that is over
            self._heads.skip(block)
            self.credit.spend(1, self.out)
            return
        self.last = stream
        if len(block) > USUAL_HEAD:  # takes us longer to read than him to write
            self.credit.spend((len(block) - USUAL_HEAD) // 16, self.out)
        try:
            head = self._heads.read(block)
        except MalformedHead:
            raise StreamFault(stream, f.PROTOCOL_ERROR) from None
        if self._final or len(self.calls) >= MOST_CALLS:
            raise StreamFault(stream, f.REFUSED_STREAM)  # which says that it was not looked at, and may come again
        self._begin(stream, head, ended)

    def _trailers(self, call: Call, block: bytes, ended: bool) -> None:
        self._heads.skip(block)
        if call.ended or not ended:
            code = f.STREAM_CLOSED if call.ended else f.PROTOCOL_ERROR
            call.cancel()
            raise StreamFault(call.id, code)
        call.end()

    def _begin(self, stream: int, head: CallHead, ended: bool) -> None:
        if head.http_status != 200:
            what = "use POST" if head.http_status == 405 else "the content-type of gRPC is application/grpc"
            self._turn_down(stream, no_call(head.http_status, what), ended)
            return
        started = time.monotonic()
        name = "unknown"
        try:
            if head.size > self.limits.max_header:
                raise HeadTooLarge(f"the head of the call is longer than {self.limits.max_header} bytes")
            method = self.front.service.method(head.path)
            name = method.name
            token = self.front.service.authorise(method, head.authorization, head.authority)
            call = (StreamCall if method.streams else Call)(self, stream, head, method, token)
        except Refusal as refusal:
            self._turn_down(stream, trailers_only(refusal.grpc_code, refusal.message), ended)
            self.front.note(self.peer, head, name, STATUS[refusal.grpc_code], 0, TurnedDown(started))
            return
        self.calls[stream] = call
        if ended:
            call.end()

    def _turn_down(self, stream: int, block: bytes, ended: bool) -> None:
        """An answer to a call that is none."""
        self.out.put(f.frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, stream, block))
        if not ended:
            self.out.put(f.reset(stream, f.NO_ERROR))

    # ---- what calls ask for

    def take(self, size: int) -> None:
        self.front.room.take(self._whose, size)

    def give_back(self, size: int) -> None:
        self.front.room.give_back(self._whose, size)

    def closed(self, call: Call) -> None:
        self.calls.pop(call.id, None)
        self.credit.earn()
        if self._call is call:
            self._call = None
        if not self.calls:
            self._since = time.monotonic()

    # ---- the end

    def drain(self) -> None:
        """Says that this connection ends; calls that are on their way already are still taken for a moment."""
        if not self._ended:
            self.out.put(f.goaway(f.LAST_STREAM, f.NO_ERROR))
            self._last_calls = time.monotonic() + LAST_CALLS_SECONDS

    def sweep(self, now: float) -> None:
        """Called a few times a second."""
        unsettled = not self._settled and self._last_calls < now
        if self.deadline < now or unsettled:
            self.abort()
        if self._ended:
            return
        callers = max(1, len(self.calls))
        for call in list(self.calls.values()):
            call.check(now, callers)
        for stream in self.out.stuck(now - self.limits.write_seconds):
            if (stuck := self.calls.get(stream.id)) is not None:
                stuck.cancel()
                self.out.put(f.reset(stream.id, f.CANCEL))
        if self.front.draining:
            if self._last_calls < now and not self._final:
                self._final = True
                self.out.put(f.goaway(self.last, f.NO_ERROR))
            for call in [call for call in self.calls.values() if self._final and call.rests]:
                call.refuse(NotReady("the server is being stopped"))
            if self._final and not self.calls:
                self._end()
        elif not self.calls and now - self._since > IDLE * self.limits.idle_seconds:
            self.out.put(f.goaway(self.last, f.NO_ERROR))
            self._end()

    def greet_http1(self) -> None:
        self.out.put(
            b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain\r\n\r\n"
            b"This port speaks gRPC, over HTTP/2; HTTP has another one.\n"
        )
        self._end()

    def fail(self, fault: ConnectionFault) -> None:
        if self._ended:
            return
        log.info("%s: closed: %s", self.peer, fault.message)
        self.front.faults += 1
        self.out.put(f.goaway(self.last, fault.code, fault.message))
        self._end()

    def _end(self) -> None:
        """Reads on for a moment: closing over unread bytes would reset the connection and lose what was said."""
        self.stop_reading()
        for call in list(self.calls.values()):
            call.cancel()
        self.out.flush()
        self.deadline = time.monotonic() + LINGER_SECONDS
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def abort(self) -> None:
        self._ended = True
        if self._transport is not None:
            self._transport.abort()
