"""Bytes of a connection, as requests: their heads, and bodies of known length or in chunks.

A head is parsed once and known again by its bytes; a body of known length is received straight into the array that
onnxruntime will read, its tensors aligned.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from calibrant.serve.body_memory import BODIES, LARGE
from calibrant.serve.http.chunked import Chunked
from calibrant.serve.http.head_buffer import HeadBuffer
from calibrant.serve.http.message import EMPTY, Head, Request
from calibrant.serve.http.parser import Parser
from calibrant.serve.protocol.errors import Overloaded, Refusal, TooLarge

if TYPE_CHECKING:
    from calibrant.serve.http.connections import Connections

HEAD, BODY, CHUNKED, BUSY, DISCARD, CLOSED = range(6)  # states of a connection
_ALIGN = 16
PASSED_SECONDS = 1.0
STEP, LONG_STEP = 64 << 10, 256 << 10  # of a large body before others' turn: a costly one, one of tensors
DISCARD_AT_ONCE = 128 << 10  # bytes
_NOWHERE = memoryview(bytearray(64 << 10))  # what is read to be forgotten
SMALL_BODY = 64 << 10  # is read before a caller is told that it was in vain, and its connection stays


class RequestReader(asyncio.BufferedProtocol):
    """Reads one request after another and hands them to what is made of it."""

    def __init__(self, connections: Connections) -> None:
        self.connections, self.limits = connections, connections.limits
        self.deadline = time.monotonic() + connections.limits.header_seconds
        self.peer = ""
        self._whose = ""  # who has its share of the room
        self._transport: Any = None
        self._state = HEAD
        self._heads = HeadBuffer()
        self._body: memoryview = EMPTY
        self._body_at = 0  # of the body, or bytes in chunks, since the last pause
        self._step = 0
        self._slowly = False
        self._charged = 0
        self._request: Request | None = None
        self._serial = 0
        self._keep_alive = True
        self._http10 = False
        self._chunked: Chunked | None = None
        self._paused = False
        self._since = 0.0  # when the body began

    # ---- of what is made of it

    def _dispatch(self, body: memoryview) -> None:
        """The request that is being read is whole."""
        raise NotImplementedError

    def _refuse(self, refusal: Refusal) -> None:
        """It will not be."""
        raise NotImplementedError

    # ---- asyncio's side

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._state == BODY:
            return self._body[self._body_at : self._body_at + self._step]
        if self._state == DISCARD:
            return _NOWHERE
        return self._heads.free()

    def buffer_updated(self, nbytes: int) -> None:
        state = self._state
        if state == BODY:
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
        elif state == HEAD:
            if self._heads.filled == 0:
                self.deadline = time.monotonic() + self.limits.header_seconds
            self._heads.came(nbytes)
            self._read_head()
        elif state == CHUNKED:
            self._feed_chunked(self._heads.newest(nbytes))
            self._body_at += nbytes
            if self._body_at >= STEP and self._charged > LARGE and self._state == CHUNKED:
                self._body_at = 0
                self._pause()
        elif state == DISCARD:  # not as fast as it comes, which would take the loop's time from the others
            self._body_at += nbytes
            if self._body_at >= DISCARD_AT_ONCE:
                self._body_at = 0
                self._pause()
        elif state == BUSY:
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
            self._await_body(CHUNKED)
            self._body_at = 0
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
            self._await_body(BODY)
            if (size > SMALL_BODY or head.expects) and self._since > head.passed:
                self._ask_about(head)
        self._charge(have)
        # What malloc gives is aligned to 16 bytes, so the tensors behind the JSON are too.
        offset = -head.json_length % _ALIGN
        try:
            self._body = BODIES.take(size + _ALIGN)[offset : offset + size]
        except MemoryError:
            raise Overloaded(f"there is no memory for a body of {size} bytes", retry_after=1) from None
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

    # ---- the pace

    def _pause(self) -> None:
        """Between steps; libuv would read thirty-two times before others' turn."""
        self._transport.pause_reading()
        asyncio.get_running_loop().call_later(self.connections.room.pause(), self._go_on_reading)

    def _go_on_reading(self) -> None:
        if self._state in (BODY, CHUNKED, DISCARD) and self._transport is not None:
            self._transport.resume_reading()
