"""One message and its answer: how it is compressed, how long it may take, and how it ends before its time."""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pytest

from calibrant.serve.grpc import wire
from calibrant.serve.processes.background import running

DATA, HEADERS, RST = 0, 1, 3
END_STREAM, END_HEADERS = 1, 4


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _message(data: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + len(data).to_bytes(4, "big") + data


def _request(pixels: Any, note: str = "") -> bytes:
    tensor = wire.field(1, "images") + wire.field(2, "UINT8") + wire.packed(3, pixels.shape)
    extra = wire.message(4, wire.field(1, "note") + wire.message(2, wire.field(3, note))) if note else b""
    return wire.field(1, "birds") + extra + wire.message(5, tensor) + wire.message(7, pixels.tobytes())


def _send(one: Any, stream: int, body: bytes, *more: tuple[str, str], method: str = "ModelInfer") -> Any:
    one.send(_frame(HEADERS, END_HEADERS, stream, one.head(method, *more)) + _frame(DATA, END_STREAM, stream, body))
    return one.answer(stream)


def _begin(one: Any, stream: int, body: bytes, *more: tuple[str, str]) -> None:
    """A call whose end is still to come."""
    one.send(_frame(HEADERS, END_HEADERS, stream, one.head("ModelInfer", *more)))
    for at in range(0, len(body), 1 << 20):
        one.send(_frame(DATA, 0, stream, body[at : at + (1 << 20)]))


def test_messages_come_compressed(talk: Callable[..., Any], tiny: ModuleType) -> None:
    pixels = tiny.pictures(2)
    one, data = talk(), _request(pixels)
    for stream, name, packed in ((1, "gzip", gzip.compress(data)), (3, "deflate", zlib.compress(data))):
        answer = _send(one, stream, _message(packed, 1), ("grpc-encoding", name))
        assert answer.status == 0
        raw = next(bytes(v) for n, _, v in wire.fields(memoryview(answer.messages[0])) if n == 6)
        np.testing.assert_allclose(np.frombuffer(raw, "<f4").reshape(2, 4), tiny.expected(pixels), atol=1e-6)
    assert _send(one, 5, _message(data), ("grpc-encoding", "gzip")).status == 0  # each message says whether it is


@pytest.mark.parametrize(
    ("body", "encoding", "status", "says"),
    [
        (_message(b"x", 1), "br", 12, "use gzip, deflate or identity"), 
        (_message(b"xy", 1), "gzip", 3, "not valid gzip"),
        (_message(b"x", 1), "identity", 3, "that it is not"), (_message(b"x", 2), "gzip", 3, "neither 0 nor 1"),
        (_message(gzip.compress(bytes(140 << 20)), 1), "gzip", 3, "larger than 134217728 bytes once decompressed"),
        (_message(b"xy")[:-1], "identity", 3, "cut off"), (_message(b"")[:-1], "identity", 3, "cut off"),
        (b"", "identity", 12, "has none"), (_message(b"") + _message(b""), "identity", 12, "has one message"),
        (b"\0\x7f\xff\xff\xff", "identity", 8, "has 2147483647 bytes; at most 67108864 are taken"),
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused_by_name(
    talk: Callable[..., Any], body: bytes, encoding: str, status: int, says: str
) -> None:
    one = talk()
    answer = _send(one, 1, body, ("grpc-encoding", encoding), method="ServerMetadata")
    assert answer.status == status
    assert says in {**answer.head, **answer.trailers}["grpc-message"]
    assert one.ask(3, "ServerMetadata").status == 0


def test_numbers_that_are_typed_one_by_one_are_read_as_those_of_bytes(
    talk: Callable[..., Any], tiny: ModuleType
) -> None:
    """Values of one byte and of two, and enough of them to be read away from the loop."""
    pixels = tiny.pictures(700)
    tensor = wire.field(1, "images") + wire.field(2, "UINT8") + wire.packed(3, pixels.shape)
    contents = wire.field(4, b"".join(map(wire.varint, pixels.ravel().tolist())))
    answer = _send(talk(), 1, _message(wire.field(1, "birds") + wire.message(5, tensor + wire.message(5, contents))))
    raw = next(bytes(v) for n, _, v in wire.fields(memoryview(answer.messages[0])) if n == 6)
    np.testing.assert_allclose(np.frombuffer(raw, "<f4").reshape(700, 4), tiny.expected(pixels), atol=1e-6)


def test_a_deadline_is_kept_while_a_call_waits_and_while_it_comes(talk: Callable[..., Any], tiny: ModuleType) -> None:
    one = talk()
    late = _send(one, 1, _message(_request(tiny.pictures(1))), ("grpc-timeout", "1n"))
    assert late.status == 4
    one.send(_frame(HEADERS, END_HEADERS, 3, one.head("ModelInfer", ("grpc-timeout", "10m"))))
    one.send(_frame(DATA, 0, 3, b"\0\0\0\x03\0some"))
    unfinished = one.answer(3)
    assert unfinished.status == 4
    assert unfinished.head["grpc-message"] == "the deadline of the call passed"
    assert unfinished.reset in (None, 0)
    for stream, timeout in ((5, "60S"), (7, "1H"), (9, "never")):  # enough time, or nothing that can be read
        assert _send(one, stream, _message(_request(tiny.pictures(1))), ("grpc-timeout", timeout)).status == 0


def test_a_refused_call_is_told_at_once_and_what_still_comes_of_it_is_let_pass(talk: Callable[..., Any]) -> None:
    one = talk()
    one.send(
        _frame(HEADERS, END_HEADERS, 1, one.head("ModelInfer")) + _frame(DATA, 0, 1, b"\0\x7f\xff\xff\xff" + bytes(99))
    )
    assert one.answer(1).status == 8
    one.until(lambda: one.answers[1].reset is not None)
    assert one.answers[1].reset == 0  # NO_ERROR: send no more
    one.send(_frame(DATA, 0, 1, bytes(1 << 20)) + _frame(DATA, END_STREAM, 1))
    assert one.ask(3, "ServerLive").status == 0


def test_what_is_behind_a_compressed_message_takes_room_too(
    model_file: Path, tmp_path: Path, talk: Callable[..., Any]
) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(f'models = ["{model_file}"]\nthreads = 1\ngrpc_port = 0\n[limits]\nmax_buffered = 1000000\n')
    with running(arguments=["--config", str(config), "--quiet"]) as server:
        one = talk(server)
        packed = _message(gzip.compress(wire.field(3, "x" * (2 << 20))), 1)
        answer = _send(one, 1, packed, ("grpc-encoding", "gzip"), method="ServerMetadata")
        assert answer.status == 8
        assert "too many large requests" in answer.head["grpc-message"]
        for stream in range(3, 43, 2):  # and gives it back
            packed = _message(gzip.compress(wire.field(3, "x" * 500_000)), 1)
            assert _send(one, stream, packed, ("grpc-encoding", "gzip"), method="ServerMetadata").status == 0


def test_a_call_that_is_given_up_is_counted_so_and_gives_its_room_back(
    model_file: Path, tmp_path: Path, talk: Callable[..., Any], tiny: ModuleType
) -> None:
    """There is room for one large message and not for two."""
    config = tmp_path / "serve.toml"
    config.write_text(f'models = ["{model_file}"]\nthreads = 1\ngrpc_port = 0\n[limits]\nmax_buffered = 3000000\n')
    with running(arguments=["--config", str(config), "--quiet", "--access-log"]) as server:
        one, other = talk(server), talk(server)
        large = _message(bytes(2 << 20))
        for stream in (1, 3, 5):
            _begin(one, stream, large[:-1], ("x-request-id", f"r{stream}"))
            one.pong()
            _begin(other, stream, large)
            assert other.answer(stream).status == 8
            one.send(_frame(RST, 0, stream, b"\0\0\0\x08"))
        _begin(one, 7, large[:-1])
        one.pong()
        one.close()  # the whole connection
        end = time.monotonic() + 60
        text = ""
        while 'method="ModelInfer",code="CANCELLED"} 4' not in text:
            text = httpx.get(server.url + "/metrics", timeout=60).text
            assert time.monotonic() < end, text
        _begin(other, 7, _message(_request(tiny.pictures(1), "n" * (2 << 20))))
        other.send(_frame(DATA, END_STREAM, 7))
        assert other.answer(7).status == 0
        assert '"status": "CANCELLED"' in server.log.read_text()
        assert '"request_id": "r3"' in server.log.read_text()
