"""The head of a request and a chunked body: whatever could be understood in two ways is refused."""

from __future__ import annotations

import pytest

from calibrant.serve.http.parser import Parser
from calibrant.serve.protocol.errors import BadInput, TooLarge

CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def head(*lines: bytes, first: bytes = b"POST / HTTP/1.1") -> int | None:
    parser = Parser(lambda size: None, 100)
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


def chunked(*pieces: bytes, most: int = 10) -> tuple[Parser, list[int]]:
    taken: list[int] = []
    parser = Parser(taken.append, most)
    parser.read_head(CHUNKED)
    parser.check_head()
    for piece in pieces:
        parser.read_body(piece)
    return parser, taken


def test_chunks_make_one_body_and_each_is_accounted_for() -> None:
    parser, taken = chunked(b"3\r\nabc\r\n2", b"\r\nde\r\n", b"0\r\n\r\n")
    assert (parser.body(), sum(taken), parser.done, parser.extra) == (b"abcde", 5, True, False)


def test_a_body_ends_at_its_limit() -> None:
    assert chunked(b"a\r\n0123456789\r\n0\r\n\r\n")[0].body() == b"0123456789"
    with pytest.raises(TooLarge, match="larger than the 10 bytes"):
        chunked(b"a\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n")


def test_a_trailer_changes_no_header() -> None:
    parser, _ = chunked(b"1\r\nx\r\n0\r\nContent-Encoding: gzip\r\n\r\n")
    assert b"content-encoding" not in parser.headers


def test_what_follows_a_chunked_body_is_seen_and_not_part_of_it() -> None:
    parser, _ = chunked(b"1\r\nx\r\n0\r\n\r\n" + CHUNKED + b"1\r\ny\r\n0\r\n\r\n")
    assert (parser.body(), parser.extra) == (b"x", True)
