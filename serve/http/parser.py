"""The head of a request, as httptools takes it apart."""

from __future__ import annotations

import contextlib
from typing import Any

import httptools

from calibrant.serve.protocol.errors import BadInput

_SINGLE = frozenset((
    b"content-length", b"transfer-encoding", b"host", b"inference-header-content-length", b"content-encoding",
))  # fmt: skip


class Parser:
    """One request's head."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[bytes, bytes] = {}
        self.keep_alive = True
        self._duplicate = b""
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

    @property
    def expects(self) -> bool:
        """Whether the caller waits to be told to go on; HTTP/1.0 knows no interim answers (RFC 9110, 10.1.1)."""
        return b"expect" in self.headers and self.version != "1.0"

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
            return None
        if length is None:
            return 0
        if not length.isdigit() or len(length) > 18:
            raise BadInput("Content-Length must be a number of bytes")
        return int(length)

    def close(self) -> None:
        self._parser = None  # it holds us by its callbacks, and would wait for the garbage collector

    # ---- httptools' side

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in self.headers and name in _SINGLE:
            self._duplicate = name
        self.headers[name] = value

    def on_headers_complete(self) -> None:
        # Asked here: once a request without a body is complete, the parser has forgotten it.
        self.keep_alive = self._parser.should_keep_alive()
