"""The head of a request: whatever could be understood in two ways is refused."""

from __future__ import annotations

import pytest

from calibrant.serve.http.parser import Parser
from calibrant.serve.protocol.errors import BadInput


def head(*lines: bytes, first: bytes = b"POST / HTTP/1.1") -> int | None:
    parser = Parser()
    parser.read_head(b"\r\n".join([first, *lines, b"", b""]))
    return parser.check_head()


def test_the_length_of_the_body_is_what_the_head_says() -> None:
    assert head(b"Host: a", b"Content-Length: 7") == 7
    assert head(b"Host: a") == 0
    assert head(b"Host: a", b"Transfer-Encoding: chunked") is None


@pytest.mark.parametrize(
    "lines",
    [
        (b"Host: a", b"Content-Length: 3", b"Transfer-Encoding: chunked"),
        (b"Host: a", b"Content-Length: 3", b"Content-Length: 4"),
        (b"Host: a", b"Host: b"),
        (b"Host: a", b"Content-Length: -1"),
        (b"Host: a", b"Content-Length: 0x10"),
        (b"Host: a", b"Content-Length: " + b"1" * 19),
        (b"Host: a", b"Transfer-Encoding: gzip, chunked"),
        (b"Host: a", b"Inference-Header-Content-Length: 3", b"Inference-Header-Content-Length: 4"),
        (b"Content-Length: 3",),  # no Host
    ],
)
def test_a_head_with_two_meanings_is_refused(lines: tuple[bytes, ...]) -> None:
    with pytest.raises(BadInput):
        head(*lines)


def test_host_may_be_missing_in_http_1_0() -> None:
    assert head(b"Content-Length: 3", first=b"POST / HTTP/1.0") == 3
