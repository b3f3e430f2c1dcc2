"""HTTP/1.1 on one event loop: requests in, answers out, and nothing that a caller does may harm another.

All times are checked by one sweep over the connections, so a request costs no timer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from typing import TYPE_CHECKING

from calibrant.serve.body_memory import LARGE
from calibrant.serve.http.message import EMPTY, Response
from calibrant.serve.http.request_reader import BODY, BUSY, CHUNKED, CLOSED, DISCARD, HEAD, RequestReader
from calibrant.serve.protocol.errors import DeadlinePassed, Refusal, TooSlow

if TYPE_CHECKING:
    from calibrant.serve.http.connections import Connections

log = logging.getLogger(__name__)

DISCARD_SECONDS = 10.0


class Connection(RequestReader):
    """One caller's connection; requests on it are answered in order, one at a time."""

    def __init__(self, connections: Connections) -> None:
        super().__init__(connections)
        self._fd = -1  # of a plain socket that may be written to directly

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
        self._state = CLOSED
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

    # ---- answering

    def _dispatch(self, body: memoryview) -> None:
        request = self._request
        if request is None:
            return
        self._state = BUSY
        now = time.monotonic()
        request.body, request.received = body, now
        if len(body) <= LARGE:
            self.connections.room.asked = now
        self._body = EMPTY
        # The queue's own deadline comes first; this one is for work that hangs.
        self.deadline = now + self.limits.request_seconds + 5.0
        serial = self._serial

        def respond(response: Response) -> None:
            if self._serial == serial and self._state == BUSY:
                self._write(response)

        if b"content-encoding" in request.headers:

            def charge(size: int) -> None:
                if self._serial == serial and self._state == BUSY:  # else nobody would give it back
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
        partial_body = self._state in (BODY, CHUNKED, HEAD)
        self._release()
        if keep:
            self._next()
        elif partial_body:
            self._linger()
        else:
            self._state = CLOSED
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
        self._state = DISCARD
        self._body, self._body_at = EMPTY, 0
        self.deadline = time.monotonic() + DISCARD_SECONDS
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _next(self) -> None:
        self._state = HEAD
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
        if self._state == HEAD and self._heads.filled:
            self._read_head()

    @property
    def idle(self) -> bool:
        return self._state == HEAD and not self._heads.filled

    def lags(self, now: float) -> bool:
        """Whether its body comes too slowly to be waited for."""
        if self._state not in (BODY, CHUNKED):
            return False
        return self._charged < self.limits.body_rate * (now - self._since - self.limits.slow_seconds)

    def expire(self) -> None:
        """Called by the sweep when the deadline of the present state has passed."""
        state = self._state
        if state == BUSY:
            if self._request is not None:
                self._request.give_up()
            self._keep_alive = False
            self._write(Response.error(DeadlinePassed("no answer within the time limit")))
        elif (state == HEAD and self._heads.filled) or state in (BODY, CHUNKED):
            what = "head" if state == HEAD else "body"
            self._refuse(TooSlow(f"the request's {what} did not arrive in time"))
        elif self._transport is not None:
            self._state = CLOSED
            self._transport.abort() if state in (DISCARD, CLOSED) else self._transport.close()

    def abort(self) -> None:
        self._state = CLOSED
        if self._transport is not None:
            self._transport.abort()
