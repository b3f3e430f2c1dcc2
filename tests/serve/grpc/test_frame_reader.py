"""Bytes in any pieces are the same frames; and frames that are none harm nobody."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import psutil

from calibrant.serve.grpc import wire
from calibrant.serve.processes.background import Running

DATA, HEADERS, SETTINGS, PING, CONTINUATION = 0, 1, 4, 6, 9
PADDED, PRIORITY, END_STREAM, END_HEADERS = 8, 32, 1, 4


def _request(pixels: Any) -> bytes:
    tensor = wire.field(1, "images") + wire.field(2, "UINT8") + wire.packed(3, pixels.shape)
    return wire.field(1, "birds") + wire.message(5, tensor) + wire.message(7, pixels.tobytes())


def _probabilities(answer: bytes, rows: int) -> Any:
    raw = next(bytes(value) for n, _, value in wire.fields(memoryview(answer)) if n == 6)
    return np.frombuffer(raw, "<f4").reshape(rows, 4)


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _message(data: bytes) -> bytes:
    return b"\0" + len(data).to_bytes(4, "big") + data


def _call_in_pieces(block: bytes, body: bytes, size: int) -> bytes:
    """A head in four frames, with padding and a priority; a message in many, some of them empty, all padded."""
    cuts = [block[:3], block[3:20], b"", block[20:]]
    out = _frame(HEADERS, PADDED | PRIORITY, 1, bytes([2]) + bytes(5) + cuts[0] + bytes(2))
    out += b"".join(_frame(CONTINUATION, 0, 1, cut) for cut in cuts[1:3]) + _frame(
        CONTINUATION, END_HEADERS, 1, cuts[3]
    )
    for at in range(0, len(body), size):
        out += _frame(DATA, PADDED, 1, bytes([at % 256]) + body[at : at + size] + bytes(at % 256))
    return out + _frame(DATA, PADDED | END_STREAM, 1, bytes([1, 0]))


def test_a_call_is_the_same_in_whatever_pieces_it_comes(talk: Callable[..., Any], tiny: ModuleType) -> None:
    pixels = tiny.pictures(3)
    body = _message(_request(pixels))
    for size, step in ((700, 1), (7, 4096), (100_000, 97)):
        one = talk()
        whole = _call_in_pieces(one.head("ModelInfer"), body, size)
        one.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(whole), step):
            one.send(whole[at : at + step])
        answer = one.answer(1)
        assert answer.status == 0
        np.testing.assert_allclose(_probabilities(answer.messages[0], 3), tiny.expected(pixels), atol=1e-6)


def test_a_message_that_is_received_where_it_will_lie_is_the_same(talk: Callable[..., Any], tiny: ModuleType) -> None:
    """800 KB in one frame, in frames of 16 KiB, and with another call's frames between them."""
    pixels = tiny.pictures(1024)
    body = _message(_request(pixels))
    one, step = talk(), 16 << 10
    one.send(_frame(HEADERS, END_HEADERS, 1, one.head("ModelInfer")) + _frame(DATA, END_STREAM, 1, body))
    one.send(
        _frame(HEADERS, END_HEADERS, 3, one.head("ModelInfer"))
        + _frame(HEADERS, END_HEADERS, 5, one.head("ModelInfer"))
    )
    for at in range(0, len(body), step):
        ends = END_STREAM if at + step >= len(body) else 0
        one.send(_frame(DATA, ends, 3, body[at : at + step]) + _frame(DATA, ends, 5, body[at : at + step]))
    for stream in (1, 3, 5):
        answer = one.answer(stream)
        assert answer.status == 0
        np.testing.assert_allclose(_probabilities(answer.messages[0], 1024), tiny.expected(pixels), atol=1e-6)


def test_the_first_words_may_come_in_any_two_pieces(grpc_server: Running) -> None:
    first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(SETTINGS, 0, 0)
    for cut in range(1, len(first)):
        with socket.create_connection((grpc_server.host, grpc_server.grpc_port), timeout=60) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.sendall(first[:cut])
            assert s.recv(3 + 1, socket.MSG_WAITALL)[3] == SETTINGS  # our own first words
            s.sendall(first[cut:] + _frame(PING, 0, 0, b"how goes"))
            said = b""
            while _frame(PING, 1, 0, b"how goes") not in said:
                more = s.recv(4096)
                assert more, (cut, said)
                said += more


def test_a_caller_of_http_1_is_told_where_he_is(grpc_server: Running) -> None:
    with socket.create_connection((grpc_server.host, grpc_server.grpc_port), timeout=60) as s:
        s.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
        said = b"".join(iter(lambda: s.recv(4096), b""))
    assert b"HTTP/1.1 400 Bad Request" in said
    assert b"speaks gRPC" in said


def _mutated(whole: bytes, dice: random.Random) -> bytes:
    """Bytes changed, left out, put in or twice, and frames of any kind."""
    data = bytearray(whole)
    for _ in range(dice.choice((1, 1, 2, 5))):
        at = dice.randrange(24 if dice.random() < 0.95 else 0, len(data))
        what = dice.randrange(5)
        if what == 0:
            data[at] = dice.randrange(256)
        elif what == 1:
            del data[at : at + dice.choice((1, 3, 9, 100))]
        elif what == 2:
            data[at:at] = dice.randbytes(dice.choice((1, 4, 9, 64)))
        elif what == 3:
            data[at:at] = data[at : at + dice.choice((9, 40, 200))]
        else:
            size = dice.choice((0, 1, 4, 5, 6, 8, 9, 300))
            stream = dice.choice((0, 1, 2, 3, 5, 2**31 - 1))
            data[33:33] = _frame(dice.randrange(12), dice.randrange(256), stream, dice.randbytes(size))
    return bytes(data)


def test_frames_that_are_none_harm_nobody(grpc_server: Running, talk: Callable[..., Any], tiny: ModuleType) -> None:
    """Three hundred conversations with mistakes in them, always the same ones: each ends, and the next good caller is
    answered; nothing of them is kept."""
    pixels = tiny.pictures(1)
    process, dice = psutil.Process(grpc_server.pid), random.Random(18)
    host, port = grpc_server.host, grpc_server.grpc_port
    before = 0
    for number in range(300):
        one = talk(greet=False)
        whole = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(SETTINGS, 0, 0)
        whole += _call_in_pieces(one.head("ModelInfer"), _message(_request(pixels)), 300)
        whole += _frame(HEADERS, END_HEADERS, 3, one.head("ServerReady")) + _frame(DATA, END_STREAM, 3, _message(b""))
        one.close()
        with socket.create_connection((host, port), timeout=60) as s:
            s.sendall(_mutated(whole, dice))
            s.shutdown(socket.SHUT_WR)
            try:
                while s.recv(65536):
                    pass
            except ConnectionResetError:
                pass
        if number == 100:
            before = process.memory_info().rss
    good = talk().ask(1, "ModelInfer", _request(pixels))
    np.testing.assert_allclose(_probabilities(good.messages[0], 1), tiny.expected(pixels), atol=1e-6)
    assert process.memory_info().rss - before < 32 << 20
    said = grpc_server.log.read_text()
    assert "Traceback" not in said, said[-3000:]


def test_a_large_message_comes_at_a_pace_beside_others(talk: Callable[..., Any], tiny: ModuleType) -> None:
    """Some 256 KiB a millisecond; alone it is not held up."""
    one, other, stop, begun = talk(), talk(), threading.Event(), threading.Event()
    large = _message(wire.field(1, "birds") + wire.message(7, bytes(15 << 20)))

    def ask() -> None:
        stream = 1
        while not stop.is_set():
            other.send(_frame(HEADERS, END_HEADERS, stream, other.head("ModelInfer")))
            other.send(_frame(DATA, END_STREAM, stream, _message(_request(tiny.pictures(1)))))
            assert other.answer(stream).status == 0
            begun.set()
            stream += 2

    def seconds(stream: int) -> float:
        start = time.monotonic()
        one.send(_frame(HEADERS, END_HEADERS, stream, one.head("ModelInfer")))
        one.send(_frame(DATA, 0, stream, large[: 1 << 20]))
        for at in range(1 << 20, len(large), 1 << 20):
            one.send(_frame(DATA, 0, stream, large[at : at + (1 << 20)]))
        one.send(_frame(DATA, END_STREAM, stream))
        assert one.answer(stream).status == 3
        return time.monotonic() - start

    thread = threading.Thread(target=ask)
    thread.start()
    assert begun.wait(60)
    try:
        beside = min(seconds(stream) for stream in (1, 3, 5))
    finally:
        stop.set()
        thread.join()
    assert beside > 0.015  # 60 pauses of up to a millisecond; without them 8 ms
    time.sleep(0.1)
    assert min(seconds(stream) for stream in range(7, 27, 2)) < beside


def test_a_message_of_very_many_fields_is_refused_at_once(grpc_server: Running, talk: Callable[..., Any]) -> None:
    """Fifty thousand of them are counted no further than there is use for."""
    one = talk()
    before = psutil.Process(grpc_server.pid).cpu_times()
    for stream in range(1, 81, 2):
        one.send(_frame(HEADERS, END_HEADERS, stream, one.head("ModelInfer")))
        one.send(_frame(DATA, END_STREAM, stream, _message(wire.message(7, b"") * 50_000)))
        answer = one.answer(stream)
        assert (answer.status, "too many fields" in str(answer.trailers | answer.head)) == (3, True)
    after = psutil.Process(grpc_server.pid).cpu_times()
    assert after.user - before.user < 0.3  # 20 ms each, once
