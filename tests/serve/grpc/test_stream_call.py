"""ModelStreamInfer: answers in order, worked on together, and as many as the caller reads."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from calibrant.serve.grpc import wire

DATA, HEADERS, WINDOW_UPDATE = 0, 1, 8
END_STREAM, END_HEADERS = 1, 4


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _request(pixels: Any, id_: str) -> bytes:
    tensor = wire.field(1, "images") + wire.field(2, "UINT8") + wire.packed(3, pixels.shape)
    data = wire.field(1, "birds") + wire.field(3, id_) + wire.message(5, tensor) + wire.message(7, pixels.tobytes())
    return b"\0" + struct.pack(">I", len(data)) + data


def _read(message: bytes) -> tuple[str, str, Any]:
    """Error, id and probabilities."""
    fields = {n: value for n, _, value in wire.fields(memoryview(message))}
    inner = [(n, bytes(v)) for n, k, v in wire.fields(fields[2]) if k == wire.BYTES]
    id_ = next((v.decode() for n, v in inner if n == 3), "")
    raw = next((v for n, v in inner if n == 6), b"")
    return bytes(fields.get(1, b"")).decode(), id_, np.frombuffer(raw, "<f4")


def test_each_message_has_its_answer_in_its_turn(talk: Callable[..., Any], tiny: ModuleType) -> None:
    """Two hundred, every tenth of them a mistake, in one go: more than are worked on at once."""
    pixels = tiny.pictures(200)
    one = talk()
    one.send(_frame(HEADERS, END_HEADERS, 1, one.head("ModelStreamInfer")))
    bodies = [_request(pixels[i : i + 1] if i % 10 else pixels[i : i + 1, :3], f"q{i}") for i in range(200)]
    whole = b"".join(bodies)
    for at in range(0, len(whole), 10_000):
        one.send(_frame(DATA, 0, 1, whole[at : at + 10_000]))
    one.send(_frame(DATA, END_STREAM, 1))
    answer = one.answer(1)
    assert answer.status == 0
    assert len(answer.messages) == 200
    for i, message in enumerate(answer.messages):
        error, id_, found = _read(message)
        if i % 10:
            assert (error, id_) == ("", f"q{i}")
            np.testing.assert_allclose(found, tiny.expected(pixels[i : i + 1])[0], atol=1e-6)
        else:
            assert "must have the shape" in error


def test_what_a_caller_does_not_read_is_not_worked_on(talk: Callable[..., Any], tiny: ModuleType) -> None:
    one = talk(settings=struct.pack(">HI", 4, 100))
    pixels = tiny.pictures(1)
    one.send(_frame(HEADERS, END_HEADERS, 1, one.head("ModelStreamInfer")))
    one.send(_frame(DATA, END_STREAM, 1, b"".join(_request(pixels, f"q{i}") for i in range(500))))
    one.until(lambda: 1 in one.answers and len(one.answers[1].data) == 100)
    one.pong()
    metadata = talk().ask(1, "ModelStatistics", wire.field(1, "birds"))
    assert metadata.status == 0
    one.send(_frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 1 << 24)))
    answer = one.answer(1)
    assert answer.status == 0
    assert [_read(message)[1] for message in answer.messages] == [f"q{i}" for i in range(500)]


def test_a_stream_of_nothing_ends_well_and_one_that_is_cut_off_does_not(talk: Callable[..., Any]) -> None:
    one = talk()
    one.send(_frame(HEADERS, END_HEADERS | END_STREAM, 1, one.head("ModelStreamInfer")))
    assert one.answer(1).status == 0
    one.send(
        _frame(HEADERS, END_HEADERS, 3, one.head("ModelStreamInfer")) + _frame(DATA, END_STREAM, 3, b"\0\0\0\0\5abc")
    )
    assert one.answer(3).status == 3


def test_ten_thousand_mistakes_in_one_go_are_answered_one_after_the_other(talk: Callable[..., Any]) -> None:
    one = talk(settings=struct.pack(">HI", 4, 1 << 24))
    one.send(_frame(HEADERS, END_HEADERS, 1, one.head("ModelStreamInfer")) + _frame(DATA, END_STREAM, 1, bytes(50_000)))
    answer = one.answer(1)
    assert answer.status == 0
    assert len(answer.messages) == 10_000


def test_messages_that_wait_in_crowds_are_refused(talk: Callable[..., Any]) -> None:
    """Five bytes each, which cost us more than that."""
    one = talk(settings=struct.pack(">HI", 4, 0))
    one.send(_frame(HEADERS, END_HEADERS, 1, one.head("ModelStreamInfer")))
    one.send(_frame(DATA, 0, 1, bytes(5 * 17_000)))
    answer = one.answer(1)
    assert answer.trailers["grpc-message"].startswith("more than 16384 messages wait")
    assert answer.status == 8
