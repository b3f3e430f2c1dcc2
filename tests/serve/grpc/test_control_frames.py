from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

SETTINGS, PING = 4, 6


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def test_pings_come_back_settings_are_acknowledged_and_the_rest_is_ignored(talk: Callable[..., Any]) -> None:
    one = talk()
    one.send(_frame(PING, 0, 0, b"12345678") + _frame(PING, 1, 0, b"not this") + _frame(SETTINGS, 1, 0))
    one.send(_frame(2, 0, 77, bytes(5)) + _frame(200, 255, 5, b"extension") + _frame(7, 0, 0, bytes(8)))
    one.send(_frame(SETTINGS, 0, 0, struct.pack(">HI", 0xBEEF, 7)))
    one.until(lambda: one.count(PING) == 1 and sum(k == SETTINGS and f == 1 for k, f, _, _ in one.seen) == 2)
    assert [payload for kind, flags, _, payload in one.seen if kind == PING and flags == 1] == [b"12345678"]
    assert one.ask(1, "ServerLive").status == 0


def test_the_server_says_what_it_takes(talk: Callable[..., Any]) -> None:
    one = talk()
    one.pong()
    kind, flags, stream, payload = one.seen[0]
    assert (kind, flags, stream) == (SETTINGS, 0, 0)
    assert dict(struct.iter_unpack(">HI", payload)) == {3: 1024, 4: 16 << 20, 5: 1 << 20, 6: 32 << 10}
    assert one.seen[1] == (8, 0, 0, struct.pack(">I", 16 << 20))


def test_a_larger_window_for_all_streams_counts_for_those_that_are_open(talk: Callable[..., Any]) -> None:
    one = talk(settings=struct.pack(">HI", 4, 3))
    one.call(1, "ServerMetadata")
    one.pong()
    assert len(one.answers[1].data) == 3
    one.send(_frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 10)))
    one.pong()
    assert len(one.answers[1].data) == 10
    one.send(_frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 2)))  # less than was sent: nothing until it is made up for
    one.send(_frame(8, 0, 1, struct.pack(">I", 8)))
    one.pong()
    assert len(one.answers[1].data) == 10
    one.send(_frame(8, 0, 1, struct.pack(">I", 1 << 20)))
    assert one.answer(1).status == 0
