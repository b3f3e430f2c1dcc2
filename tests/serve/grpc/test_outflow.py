"""Answers and windows: against a caller who says how much he takes."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psutil
import pytest

from calibrant.serve.grpc import wire
from calibrant.serve.processes.background import running

DATA, HEADERS, RST, WINDOW_UPDATE = 0, 1, 3, 8
END_STREAM, END_HEADERS = 1, 4


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _opened(stream: int, size: int) -> bytes:
    return _frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", size))


def _request(pixels: Any) -> bytes:
    tensor = wire.field(1, "images") + wire.field(2, "UINT8") + wire.packed(3, pixels.shape)
    return wire.field(1, "birds") + wire.message(5, tensor) + wire.message(7, pixels.tobytes())


def _probabilities(answer: Any, rows: int) -> Any:
    raw = next(bytes(v) for n, _, v in wire.fields(memoryview(answer.messages[0])) if n == 6)
    return np.frombuffer(raw, "<f4").reshape(rows, 4)


def test_an_answer_goes_as_far_as_the_windows_let_it(talk: Callable[..., Any], tiny: ModuleType) -> None:
    """32 KB to a caller whose streams begin with 1,000 bytes, and whose connection has 65,535."""
    pixels = tiny.pictures(1000)
    one = talk(settings=struct.pack(">HI", 4, 1000), room=0)
    one.call(1, "ModelInfer", _request(pixels))
    one.until(lambda: 1 in one.answers and len(one.answers[1].data) == 1000)
    one.send(_opened(1, 500))
    one.pong()
    assert len(one.answers[1].data) == 1500
    one.send(_opened(1, 1 << 20))
    answer = one.answer(1)
    assert answer.status == 0
    np.testing.assert_allclose(_probabilities(answer, 1000), tiny.expected(pixels), atol=1e-6)
    one.call(3, "ModelInfer", _request(pixels))
    one.send(_opened(3, 1 << 20))
    one.call(5, "ModelInfer", _request(pixels))
    one.send(_opened(5, 1 << 20))
    size = len(answer.data)
    one.until(lambda: sum(len(a.data) for a in one.answers.values()) == 65535)  # the connection's window is used up
    one.pong()
    assert 2 * size < 65535 < 3 * size
    one.send(_opened(0, 1 << 20))
    for stream in (3, 5):
        np.testing.assert_allclose(_probabilities(one.answer(stream), 1000), tiny.expected(pixels), atol=1e-6)


@pytest.mark.parametrize(("asked", "most"), [(None, 16_384), (20_000, 20_000)])
def test_no_frame_is_longer_than_the_caller_takes(
    talk: Callable[..., Any], tiny: ModuleType, asked: int | None, most: int
) -> None:
    settings = struct.pack(">HI", 4, 1 << 20) + (b"" if asked is None else struct.pack(">HI", 5, asked))
    one = talk(settings=settings)
    one.call(1, "ModelInfer", _request(tiny.pictures(1000)))
    assert one.answer(1).status == 0
    sizes = [len(payload) for kind, _, _, payload in one.seen if kind == DATA]
    assert sizes[0] == most
    assert max(sizes) == most


def test_answers_take_turns_and_one_that_is_given_up_gives_way(talk: Callable[..., Any], tiny: ModuleType) -> None:
    pixels = tiny.pictures(1000)
    one = talk(settings=struct.pack(">HI", 4, 1 << 20), room=0)
    for stream in (1, 3, 5, 7):
        one.call(stream, "ModelInfer", _request(pixels))
    one.until(lambda: sum(len(a.data) for a in one.answers.values()) == 65535)
    one.send(_frame(RST, 0, 7, b"\0\0\0\x08") + _opened(0, 1 << 20))
    for stream in (1, 3, 5):
        assert one.answer(stream).status == 0
    assert one.ask(9, "ServerLive").status == 0


def test_callers_who_take_nothing_are_cut_off_and_cost_little(
    model_file: Path, tmp_path: Path, talk: Callable[..., Any], tiny: ModuleType
) -> None:
    """One whose windows are shut loses the call; one who does not read from his socket the connection."""
    config = tmp_path / "serve.toml"
    config.write_text(f'models = ["{model_file}"]\nthreads = 1\ngrpc_port = 0\n[limits]\nwrite_seconds = 0.5\n')
    with running(arguments=["--config", str(config), "--quiet"]) as server:
        shut = talk(server, settings=struct.pack(">HI", 4, 100))
        shut.call(1, "ModelInfer", _request(tiny.pictures(100)))
        assert shut.answer(1).reset == 8  # CANCEL
        assert len(shut.answers[1].data) == 100
        deaf = talk(server, settings=struct.pack(">HI", 4, 1 << 30), room=1 << 30)
        process = psutil.Process(server.pid)
        before = process.memory_info().rss
        asked = b"\0\0\0\0\7" + wire.field(1, "birds")
        deaf.call(1, "ModelConfig", asked[5:])
        block = deaf.head("ModelConfig")

        def send() -> None:
            for stream in itertools.count(3, 400):
                calls = range(stream, stream + 400, 2)
                deaf.send(b"".join(_frame(HEADERS, 4, n, block) + _frame(DATA, END_STREAM, n, asked) for n in calls))

        with pytest.raises(ConnectionError):  # until then nothing ends it
            send()
        assert process.memory_info().rss - before < 128 << 20
        assert shut.ask(3, "ServerLive").status == 0
