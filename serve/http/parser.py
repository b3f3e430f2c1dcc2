"""The head of a request, and a chunked body, as httptools takes them apart."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import httptools

from calibrant.serve.protocol.errors import BadInput, Refusal, TooLarge

_SINGLE = frozenset((
    b"content-length", b"transfer-encoding", b"host", b"inference-header-content-length", b"content-encoding",
))  # fmt: skip


class Parser:
    """One request. `reserve` is called with the size of each piece of its body and may refuse."""

    def __init__(self, reserve: Callable[[int], None], max_body: int) -> None:
        self.url = b""
        self.headers: dict[bytes, bytes] = {}
        self.keep_alive = True
        self.done = False  # the chunked body is whole
        self.extra = False  # something follows it
        self._reserve = reserve
        self._max_body = max_body
        self._duplicate = b""
        self._chunks: list[bytes] = []
        self._size = 0
        self._in_body = False
        self._parser: Any = httptools.HttpRequestParser(self)

    def read_head(self, data: bytes) -> None:
        """The whole head, or a refusal."""
        try:
            # An offer to speak another protocol need not be taken.
            with contextlib.suppress(httptools.HttpParserUpgrade):
                self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise BadInput(f"not a valid HTTP request ({error})") from None

    @property
    def method(self) -> bytes:
        method: bytes = self._parser.get_method()
        return method

    @property
    def version(self) -> str:
        version: str = self._parser.get_http_version()
        return version

    def check_head(self) -> int | None:
        """The length of the body, None where it comes in chunks; refuses what could be understood in two ways."""
        headers = self.headers
        if self._duplicate:
            raise BadInput(f"the header {self._duplicate.decode()} is there twice")
        if self.version not in ("1.1", "1.0"):
            raise BadInput("only HTTP/1.1 and 1.0 are spoken here")
        if b"host" not in headers and self.version == "1.1":
            raise BadInput("the Host header is missing")
        coding, length = headers.get(b"transfer-encoding"), headers.get(b"content-length")
        if coding is not None:
            if length is not None or coding.strip().lower() != b"chunked":
                raise BadInput("Transfer-Encoding must be `chunked`, without a Content-Length")
            self._in_body = True
            return None
        if length is None:
            return 0
        if not length.isdigit() or len(length) > 18:
            raise BadInput("Content-Length must be a number of bytes")
        return int(length)

    def read_body(self, data: bytes) -> None:
        """The next bytes of a chunked body."""
        try:
            with contextlib.suppress(httptools.HttpParserUpgrade):
                self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, Refusal):  # raised in a callback
                raise error.__context__ from None
            raise BadInput(f"damaged chunked body ({error})") from None

    def body(self) -> bytes:
        whole, self._chunks = b"".join(self._chunks), []
        return whole

    def close(self) -> None:
        self._parser = None  # it holds us by its callbacks, and the body would wait for the garbage collector

    # ---- httptools' side

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:  # a trailer, which must not change what the head said
            return
        name = name.lower()
        if name in self.headers and name in _SINGLE:
            self._duplicate = name
        self.headers[name] = value

    def on_headers_complete(self) -> None:
        # Asked here: once a request without a body is complete, the parser has forgotten it.
        self.keep_alive = self._parser.should_keep_alive()

    def on_message_begin(self) -> None:
        if self.done:  # a second request behind a chunked one: answered on a new connection
            self.extra = True

    def on_body(self, body: bytes) -> None:
        if not self._in_body or self.done:
            return
        self._size += len(body)
        if self._size > self._max_body:
            raise TooLarge(f"the body is larger than the {self._max_body} bytes that are taken")
        self._reserve(len(body))
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        self.done = self.done or self._in_body
