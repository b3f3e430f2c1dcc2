"""Bytes come as they like; whole heads come out, and what is behind them begins the next."""

from __future__ import annotations

import pytest

from calibrant.serve.http.head_buffer import FIRST, KEPT, HeadBuffer
from calibrant.serve.protocol.errors import BadInput, HeadTooLarge

HEAD = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


def feed(buffer: HeadBuffer, data: bytes) -> None:
    while data:
        room = buffer.free()
        size = min(len(room), len(data))
        room[:size] = data[:size]
        room.release()
        buffer.came(size)
        data = data[size:]


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(HEAD)])
def test_a_head_is_whole_however_it_is_cut(size: int) -> None:
    buffer = HeadBuffer()
    found = None
    for at in range(0, len(HEAD), size):
        assert found is None
        feed(buffer, HEAD[at : at + size])
        found = buffer.take(1000)
    assert found == (HEAD, b"")
    assert buffer.filled == 0


def test_what_came_behind_it_is_given_and_may_be_put_back() -> None:
    buffer = HeadBuffer()
    feed(buffer, HEAD + b"POST /")
    assert buffer.take(1000) == (HEAD, b"POST /")
    buffer.put_back(b"POST /")
    feed(buffer, b" HTTP/1.1\r\n\r\n")
    assert buffer.take(1000) == (b"POST / HTTP/1.1\r\n\r\n", b"")


def test_blank_lines_before_a_request_are_passed_over() -> None:
    buffer = HeadBuffer()
    feed(buffer, b"\r\n\r\n")
    assert buffer.take(1000) is None
    feed(buffer, b"\n" + HEAD)
    assert buffer.take(1000) == (HEAD, b"")


def test_the_longest_head_is_taken_and_no_longer_one() -> None:
    buffer = HeadBuffer()
    feed(buffer, HEAD)
    assert buffer.take(len(HEAD)) is not None
    feed(buffer, HEAD)
    with pytest.raises(HeadTooLarge, match=f"longer than {len(HEAD) - 1} bytes"):
        buffer.take(len(HEAD) - 1)


def test_a_head_without_end_is_refused_when_it_is_too_long() -> None:
    buffer = HeadBuffer()
    feed(buffer, b"A" * 99)
    assert buffer.take(100) is None
    feed(buffer, b"A")
    with pytest.raises(HeadTooLarge):
        buffer.take(100)


def test_what_begins_with_no_letter_is_no_request() -> None:
    buffer = HeadBuffer()
    feed(buffer, b"\x16\x03\x01")
    with pytest.raises(BadInput, match="not an HTTP request"):
        buffer.take(1000)


def test_a_long_head_gives_its_memory_back_when_it_is_done() -> None:
    buffer = HeadBuffer()
    feed(buffer, b"A" * KEPT + b"\r\n\r\nPOST")
    assert buffer.take(2 * KEPT) == (b"A" * KEPT + b"\r\n\r\n", b"POST")
    buffer.put_back(b"POST")
    assert len(buffer.free()) == FIRST - 4
