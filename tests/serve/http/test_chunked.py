"""Chunked bodies by hand, in every cut, and with what must not be taken."""

from __future__ import annotations

import pytest

from calibrant.serve.http.chunked import MOST_EXTRAS, Chunked
from calibrant.serve.protocol.errors import BadInput, HeadTooLarge, Overloaded, Refusal, TooLarge

# "hello world", an extension, a trailer, and the next request.
WIRE = b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX: y\r\n\r\nGET /"


def _nothing(size: int) -> None:
    pass


def _refused(data: bytes, most: int = 1000) -> Refusal:
    with pytest.raises(Refusal) as caught:
        Chunked(_nothing, most).feed(data)
    return caught.value


@pytest.mark.parametrize("step", [1, 2, 3, 7, len(WIRE)])
def test_a_body_is_the_same_however_it_is_cut(step: int) -> None:
    reader, charged, rest = Chunked(lambda n: charged.append(n), 11), [], None  # type: ignore[var-annotated]
    at = 0
    while rest is None:
        rest = reader.feed(WIRE[at : at + step])
        at += step
    assert bytes(reader.body) == b"hello world"
    assert rest + WIRE[at:] == b"GET /"
    assert sum(charged) == 11


@pytest.mark.parametrize(
    "data",
    [
        b"zz\r\n", b"\r\n", b"-1\r\n", b"+5\r\n", b"0x5\r\n", b" 5\r\n", b"5 5\r\n", b"5\nhello", b"5\r\nhello!\r\n",
        b"5\r\nhello\n\n", b"0\r\nno header\r\n\r\n", b"0\r\n : x\r\n\r\n", b"0\r\nX: y\n\r\n", b"5;a\rb\r\nhello\r\n",
        b"1234567890abcdef\r\n",
    ],
)  # fmt: skip
def test_what_could_be_read_in_two_ways_is_refused(data: bytes) -> None:
    assert type(_refused(data)) is BadInput


def test_the_size_that_is_claimed_is_refused_before_it_comes() -> None:
    assert type(_refused(b"3e9\r\n", most=1000)) is TooLarge  # 1001
    assert Chunked(_nothing, 1000).feed(b"3e8\r\n") is None
    assert type(_refused(b"2\r\nab\r\n2\r\n", most=3)) is TooLarge


def test_extensions_and_trailers_are_counted_together() -> None:
    half = b"y" * (MOST_EXTRAS // 2 - 10)
    data = b"1;" + half + b"\r\nx\r\n0\r\nX: " + half + b"\r\n\r\n"
    assert Chunked(_nothing, 10).feed(data) == b""
    assert type(_refused(data.replace(b"\r\n\r\n", b"\r\nY: 0123456789\r\n\r\n"))) is HeadTooLarge
    assert type(_refused(b"1;" + b"y" * (MOST_EXTRAS + 1))) is HeadTooLarge


def test_content_is_charged_as_it_comes_and_not_as_it_is_claimed() -> None:
    def charge(size: int) -> None:
        seen.append(size)
        if sum(seen) > 4:
            raise Overloaded("full")

    seen: list[int] = []
    reader = Chunked(charge, 1000)
    assert reader.feed(b"ff\r\nabcd") is None
    assert seen == [4]
    with pytest.raises(Overloaded):
        reader.feed(b"e")
