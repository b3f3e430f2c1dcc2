"""Floods of frames that bring no call nearer to its answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from calibrant.serve.grpc.credit import MOST, OF_A_RESET, PER_SECOND, Credit
from calibrant.serve.grpc.frames import ConnectionFault

CALM = 11


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _flood(one: Any, kind: str) -> bytes:
    """About a megabyte of it."""
    call = bytes(one.head("ServerLive"))
    one.send(_frame(1, 4, 1, call))  # an open call, whose head the next ones may repeat
    again = bytes(one.head("ServerLive"))
    floods = {
        "resets": b"".join(_frame(1, 4, n, again) + _frame(3, 0, n, b"\0\0\0\x08") for n in range(3, 12_000, 2)),
        "pings": _frame(6, 0, 0, b"whatever") * 40_000,
        "settings": _frame(4, 0, 0) * 40_000,
        "windows": _frame(8, 0, 0, b"\0\0\0\1") * 40_000,
        "priorities": _frame(2, 0, 1, bytes(5)) * 40_000,
        "empty data": _frame(0, 0, 1) * 40_000,
        "continuations": _frame(1, 0, 3) + _frame(9, 0, 3) * 40_000,
        "extensions": _frame(99, 0, 0) * 40_000,
        "refused": b"".join(_frame(1, 4, n, bytes([0x82 + n % 2])) for n in range(3, 12_000, 2)),
    }
    return floods[kind]


@pytest.mark.parametrize(
    "kind",
    ["resets", "pings", "settings", "windows", "priorities", "empty data", "continuations", "extensions", "refused"],
)
def test_a_flood_ends_its_connection_and_no_other(talk: Callable[..., Any], kind: str) -> None:
    one, good = talk(), talk()
    flood = _flood(one, kind)
    one.socket.setblocking(False)
    with contextlib.suppress(ConnectionError, BlockingIOError):
        while flood:  # while it is read: answers to pings would fill the buffers of both sides
            with contextlib.suppress(BlockingIOError):
                flood = flood[one.socket.send(flood[: 64 << 10]) :]
            with contextlib.suppress(BlockingIOError):
                data = one.socket.recv(1 << 20)
                if not data:
                    break
                one._rest += data
                one._read()
    one.socket.settimeout(60)
    assert one.goaway() == CALM
    assert good.ask(1, "ServerLive").status == 0


def test_time_answers_and_calls_bring_credit_back() -> None:
    class Out:
        data_frames = 0

    out: Any = Out()
    credit = Credit()
    credit.spend(MOST, out)
    with pytest.raises(ConnectionFault):
        credit.spend(OF_A_RESET + PER_SECOND, out)  # a second's worth more than there can be by now
    credit = Credit()
    credit.spend(MOST, out)
    for _ in range(3):
        credit.earn()
    credit.spend(OF_A_RESET, out)
    out.data_frames = 100
    credit.spend(300, out)
    assert out.data_frames == 0
