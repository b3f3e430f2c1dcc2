"""HTTP/1.1 on one event loop: requests in, answers out, and nothing that a caller does may harm another.

A head is parsed once and known again by its bytes; a body of known length is received straight into the array that
onnxruntime will read, its tensors aligned. All times are checked by one sweep over the connections, so a request costs
no timer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from calibrant.serve.body_memory import BODIES, LARGE
from calibrant.serve.http.chunked import Chunked
from calibrant.serve.http.head_buffer import HeadBuffer
from calibrant.serve.http.message import EMPTY, Head, Request, Response
from calibrant.serve.http.parser import Parser
from calibrant.serve.protocol.errors import (
    DeadlinePassed,
    Refusal,
    TooLarge,
    TooSlow,
)

if TYPE_CHECKING:
    from calibrant.serve.http.connections import Connections

log = logging.getLogger(__name__)

_HEAD, _BODY, _CHUNKED, _BUSY, _DISCARD, _CLOSED = range(6)
_ALIGN = 16
PASSED_SECONDS = 1.0
STEP, LONG_STEP = (
    64 << 10,
    256 << 10,
)  # of a large body before others' turn: a costly one, one of tensors
DISCARD_SECONDS, DISCARD_AT_ONCE = 10.0, 128 << 10  # seconds in all; bytes between pauses
_NOWHERE = memoryview(bytearray(64 << 10))  # what is read to be forgotten
SMALL_BODY = 64 << 10  # is read before a caller is told that it was in vain, and its connection stays


class Connection(asyncio.BufferedProtocol):
    """One caller's connection; requests on it are answered in order, one at a time."""

    def __init__(self, connections: Connections) -> None:
        self.connections, self.limits = connections, connections.limits
        self.deadline = time.monotonic() + connections.limits.header_seconds
        self._transport: Any = None
        self._state = _HEAD
        self._heads = HeadBuffer()
        self._body: memoryview = EMPTY
        self._body_at = 0
        self._step = 0
        self._slowly = False
        self._charged = 0
        self._request: Request | None = None
        self._serial = 0
        self._keep_alive = True
        self._http10 = False
        self._chunked: Chunked | None = None
        self._paused = False
        self._fd = -1  # of a plain socket that may be written to directly
        self._since = 0.0  # when the body began
        self._whose = ""  # who has its share of the room
        self.peer = ""

    # ---- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        connections = self.connections
        connections.accepted += 1
        connections.open.add(self)
        peer = transport.get_extra_info("peername")
        if transport.get_extra_info("sslcontext") is None and sys.platform != "win32":
            self._fd = transport.get_extra_info("socket").fileno()
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) >= 2 else ""
        self._whose = connections.room.whose(peer[0]) if self.peer else ""
        try:
            connections.room.enter(self._whose)
        except Refusal as refusal:
            connections.refused += 1
            self._refuse(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        self._state = _CLOSED
        self.connections.open.discard(self)
        request, self._request = self._request, None
        if request is not None:
            request.give_up()
        self._release()
        self.connections.room.leave(self._whose)
        self._chunked = None
        self._transport = None
        self._body = EMPTY
        self._heads.drop()

    def eof_received(self) -> bool:
        """The caller is gone, and its request with it. (One that only closed its sending side looks the same; most
        servers cut it off too, and running what nobody waits for would cost the others.)"""
        return False

    def pause_writing(self) -> None:
        self.deadline = min(self.deadline, time.monotonic() + self.limits.write_seconds)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._state == _BODY:
            return self._body[self._body_at : self._body_at + self._step]
        if self._state == _DISCARD:
            return _NOWHERE
        return self._heads.free()

    def buffer_updated(self, nbytes: int) -> None:
        state = self._state
        if state == _BODY:
            self._body_at += nbytes
            self._charged += nbytes
            try:
                self.connections.room.take(self._whose, nbytes)
            except Refusal as refusal:
                self._charged -= nbytes
                self._refuse(refusal)
                return
            if self._body_at == len(self._body):
                self._dispatch(self._body)
            elif self._slowly:
                self._pause()
        elif state == _HEAD:
            if self._heads.filled == 0:
                self.deadline = time.monotonic() + self.limits.header_seconds
            self._heads.came(nbytes)
            self._read_head()
        elif state == _CHUNKED:
            self._feed_chunked(self._heads.newest(nbytes))
        elif state == _DISCARD:  # not as fast as it comes, which would take the loop's time from the others
            self._body_at += nbytes
            if self._body_at >= DISCARD_AT_ONCE:
                self._body_at = 0
                self._pause()
        elif state == _BUSY:
            self._heads.came(nbytes)  # the next request, sent ahead
            if self._heads.filled >= self.limits.max_header and not self._paused:
                self._transport.pause_reading()
                self._paused = True

    # ---- the head

    def _read_head(self) -> None:
        try:
            found = self._heads.take(self.limits.max_header)
        except Refusal as refusal:
            self._refuse(refusal)
            return
        if found is None:
            return
        head, rest = found
        known = self.connections.heads.get(head)
        if known is not None:
            self._start(known, rest)
            return
        parser = Parser()
        try:
            parser.read_head(head)
            self._begin(parser, head, rest)
        except Refusal as refusal:
            self._refuse(refusal)
        finally:
            parser.close()

    def _begin(self, parser: Parser, data: bytes, rest: bytes) -> None:
        """After the head: what body follows, and is it acceptable?"""
        length = parser.check_head()
        if length is None:
            self._keep_alive = parser.keep_alive and not self.connections.draining
            self._request = Request(parser.method, parser.url, parser.headers, peer=self.peer)
            self._serial += 1
            self.connections.gate(self._request)
            self._await_body(_CHUNKED)
            self._chunked = Chunked(self._charge, self.limits.max_body)
            self._http10 = parser.version == "1.0"
            if parser.expects:
                self._go_on(parser.headers)
            self._feed_chunked(rest)
            return
        prefix = parser.headers.get(b"inference-header-content-length", b"0")
        json_length = int(prefix) if prefix.isdigit() and len(prefix) < 18 else 0
        head = Head(
            parser.method,
            parser.url,
            parser.headers,
            parser.keep_alive,
            length,
            json_length,
            http10=parser.version == "1.0",
            expects=parser.expects,
        )
        self.connections.keep(data, head)
        self._start(head, rest)

    def _start(self, head: Head, rest: bytes) -> None:
        """A request without a body, or with one of known length."""
        self._keep_alive = head.keep_alive and not self.connections.draining
        self._http10 = head.http10
        self._request = Request(head.method, head.target, head.headers, peer=self.peer)
        self._serial += 1
        if head.length:
            try:
                self._receive(head, rest)
            except Refusal as refusal:
                self._refuse(refusal)
            return
        self._heads.put_back(rest)
        self._dispatch(EMPTY)

    def _receive(self, head: Head, rest: bytes) -> None:
        """Makes room for the body, its binary tensors on an aligned address."""
        size = head.length
        if size > self.limits.max_body:
            raise TooLarge(f"the body has {size} bytes; at most {self.limits.max_body} are taken")
        have = min(len(rest), size)
        if have < size:
            self._await_body(_BODY)
            if (size > SMALL_BODY or head.expects) and self._since > head.passed:
                self._ask_about(head)
        self._charge(have)
        # What malloc gives is aligned to 16 bytes, so the tensors behind the JSON are too.
        offset = -head.json_length % _ALIGN
        self._body = BODIES.take(size + _ALIGN)[offset : offset + size]
        self._body_at = have
        self._slowly = size > LARGE
        self._step = size if not self._slowly else STEP if head.costly else LONG_STEP
        if have == size:
            self._body[:] = rest[:have]
            self._heads.put_back(rest[have:])
            self._dispatch(self._body)
            return
        self._body[:have] = rest
        if head.expects:
            self._go_on(head.headers)

    def _ask_about(self, head: Head) -> None:
        """Whether its body may come. The whole request is admitted anyway, so for a moment a known head will do."""
        if self._request is not None:
            head.costly = self.connections.gate(self._request)
        head.passed = self._since + PASSED_SECONDS

    def _await_body(self, state: int) -> None:
        self._state, self._since = state, time.monotonic()
        self.deadline = self._since + self.limits.body_seconds

    def _charge(self, size: int) -> None:
        self.connections.room.take(self._whose, size)
        self._charged += size

    def _release(self) -> None:
        if self._charged:
            self.connections.room.give_back(self._whose, self._charged)
            self._charged = 0

    def _go_on(self, headers: Mapping[bytes, bytes]) -> None:
        if headers[b"expect"].lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _feed_chunked(self, data: bytes) -> None:
        chunked = self._chunked
        if chunked is None:
            return
        try:
            rest = chunked.feed(data)
        except Refusal as refusal:
            self._refuse(refusal)
            return
        if rest is not None:
            self._chunked = None
            self._heads.put_back(rest)
            self._dispatch(memoryview(chunked.body))

    # ---- answering

    def _dispatch(self, body: memoryview) -> None:
        request = self._request
        if request is None:
            return
        self._state = _BUSY
        now = time.monotonic()
        request.body, request.received = body, now
        if len(body) <= LARGE:
            self.connections.room.asked = now
        self._body = EMPTY
        # The queue's own deadline comes first; this one is for work that hangs.
        self.deadline = now + self.limits.request_seconds + 5.0
        serial = self._serial

        def respond(response: Response) -> None:
            if self._serial == serial and self._state == _BUSY:
                self._write(response)

        if b"content-encoding" in request.headers:

            def charge(size: int) -> None:
                if self._serial == serial and self._state == _BUSY:  # else nobody would give it back
                    self._charge(size)

            request.charge = charge
        try:
            self.connections.app(request, respond)
        except Exception as error:
            respond(Response.error(Refusal.of(error)))

    def _refuse(self, refusal: Refusal) -> None:
        """An answer to what is not a whole request; the rest of it cannot be told from the next one."""
        self._keep_alive = False
        self.connections.refusals[refusal.status] = self.connections.refusals.get(refusal.status, 0) + 1
        response = Response.error(refusal)
        self._write(response)
        log.info("%s: refused with %d: %s", self.peer, refusal.status, refusal.message)

    def _write(self, response: Response) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        request, self._request = self._request, None
        keep = self._keep_alive and not self.connections.draining
        size = sum(map(len, response.parts))
        head = response.head(size, self.connections.date(), keep_alive=keep, http10=self._http10)
        if request is not None and request.method == b"HEAD":
            self._transport.write(head)
        elif size < 65536:
            self._send(b"".join((head, *response.parts)))
        else:
            self._transport.writelines([head, *response.parts])
        partial_body = self._state in (_BODY, _CHUNKED, _HEAD)
        self._release()
        if keep:
            self._next()
        elif partial_body:
            self._linger()
        else:
            self._state = _CLOSED
            self._transport.close()

    def _send(self, data: bytes) -> None:
        """At once where the socket takes it: uvloop's write would wait until the loop has nothing else to do."""
        if self._fd >= 0 and not self._transport.get_write_buffer_size():
            try:  # noqa: SIM105 - suppress() is three calls more for each request
                data = data[os.write(self._fd, data) :]
            except OSError:  # a full buffer, a caller that is gone: the transport sees to those
                pass
        if data:
            self._transport.write(data)

    def _linger(self) -> None:
        """Reads on for a moment: closing over unread bytes would reset the connection and lose the answer."""
        self._state = _DISCARD
        self._body, self._body_at = EMPTY, 0
        self.deadline = time.monotonic() + DISCARD_SECONDS
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _pause(self) -> None:
        """Between steps; libuv would read thirty-two times before others' turn."""
        self._transport.pause_reading()
        asyncio.get_running_loop().call_later(self.connections.room.pause(), self._go_on_reading)

    def _go_on_reading(self) -> None:
        if self._state in (_BODY, _DISCARD) and self._transport is not None:
            self._transport.resume_reading()

    def _next(self) -> None:
        self._state = _HEAD
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        if self._heads.filled:
            self.deadline = time.monotonic() + self.limits.header_seconds
            # Not called directly: a long line of requests sent ahead would grow the stack and starve other callers.
            asyncio.get_running_loop().call_soon(self._resume)
        else:
            self.deadline = time.monotonic() + self.limits.idle_seconds

    def _resume(self) -> None:
        if self._state == _HEAD and self._heads.filled:
            self._read_head()

    @property
    def idle(self) -> bool:
        return self._state == _HEAD and not self._heads.filled

    def lags(self, now: float) -> bool:
        """Whether its body comes too slowly to be waited for."""
        if self._state not in (_BODY, _CHUNKED):
            return False
        return self._charged < self.limits.body_rate * (now - self._since - self.limits.slow_seconds)

    def expire(self) -> None:
        """Called by the sweep when the deadline of the present state has passed."""
        state = self._state
        if state == _BUSY:
            if self._request is not None:
                self._request.give_up()
            self._keep_alive = False
            self._write(Response.error(DeadlinePassed("no answer within the time limit")))
        elif (state == _HEAD and self._heads.filled) or state in (_BODY, _CHUNKED):
            what = "head" if state == _HEAD else "body"
            self._refuse(TooSlow(f"the request's {what} did not arrive in time"))
        elif self._transport is not None:
            self._state = _CLOSED
            self._transport.abort() if state in (_DISCARD, _CLOSED) else self._transport.close()

    def abort(self) -> None:
        self._state = _CLOSED
        if self._transport is not None:
            self._transport.abort()
