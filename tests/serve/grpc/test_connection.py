"""What ends a connection, what ends a call, and what a connection may have."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from calibrant.serve.processes.background import Running, running

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
NO_ERROR, PROTOCOL, FLOW_CONTROL, STREAM_CLOSED, FRAME_SIZE = 0, 1, 3, 5, 6
REFUSED, COMPRESSION, CALM = 7, 9, 11
LIVE = "ServerLive"


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _setting(key: int, value: int) -> bytes:
    return struct.pack(">HI", key, value)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (_frame(HEADERS, END_HEADERS, 2, b"\x82"), PROTOCOL), (_frame(HEADERS, END_HEADERS, 0, b"\x82"), PROTOCOL),
        (_frame(DATA, 0, 1, b"x"), PROTOCOL), (_frame(DATA, 0, 0, b"x"), PROTOCOL),
        (_frame(RST, 0, 1, bytes(4)), PROTOCOL), (_frame(RST, 0, 1, bytes(3)), FRAME_SIZE),
        (_frame(PUSH, END_HEADERS, 1, bytes(9)), PROTOCOL), (_frame(CONTINUATION, END_HEADERS, 1, b"\x82"), PROTOCOL),
        (_frame(HEADERS, 0, 1, b"\x82") + _frame(PING, 0, 0, bytes(8)), PROTOCOL),
        (_frame(HEADERS, 0, 1, b"\x82") + _frame(CONTINUATION, 0, 3, b"\x82"), PROTOCOL),
        (_frame(HEADERS, 0, 1, b"\x82") + _frame(DATA, 0, 1, b"x"), PROTOCOL),
        (_frame(HEADERS, END_HEADERS | PADDED, 1, b""), FRAME_SIZE),
        (_frame(HEADERS, END_HEADERS | PADDED, 1, b"\x09\x82"), PROTOCOL),
        (_frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff"), COMPRESSION),
        (_frame(PING, 0, 0, bytes(7)), FRAME_SIZE), (_frame(PING, 0, 1, bytes(8)), PROTOCOL),
        (_frame(SETTINGS, 0, 0, bytes(5)), FRAME_SIZE), (_frame(SETTINGS, 1, 0, bytes(6)), FRAME_SIZE),
        (_frame(SETTINGS, 0, 1), PROTOCOL), (_frame(SETTINGS, 0, 0, _setting(4, 1 << 31)), FLOW_CONTROL),
        (_frame(SETTINGS, 0, 0, _setting(5, 100)), PROTOCOL), (_frame(SETTINGS, 0, 0, _setting(2, 2)), PROTOCOL),
        (_frame(WINDOW_UPDATE, 0, 0, bytes(4)), PROTOCOL), (_frame(WINDOW_UPDATE, 0, 9, b"\0\0\0\1"), PROTOCOL),
        (_frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), FLOW_CONTROL),
        (_frame(PING, 0, 0, bytes(40_000)), FRAME_SIZE), (b"\x10\x00\x01" + bytes(6), FRAME_SIZE),
    ],
)  # fmt: skip
def test_what_cannot_be_made_sense_of_ends_the_connection_with_its_name(
    talk: Callable[..., Any], data: bytes, code: int
) -> None:
    one = talk()
    one.send(data)
    assert one.goaway() == code


def test_the_first_words_are_those_of_http_2(talk: Callable[..., Any]) -> None:
    for data in (b"X" * 24, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(PING, 0, 0, bytes(8))):
        one = talk(greet=False)
        one.send(data)
        assert one.goaway() == PROTOCOL


def test_a_head_that_no_request_has_ends_its_stream_only(talk: Callable[..., Any]) -> None:
    one = talk()
    heads = (
        one.head(LIVE, ("Upper", "x")), one.head(LIVE, ("connection", "close")), one.head(LIVE, (":path", "/again")),
        one.head(LIVE, te="gzip"), one.encoder.encode([(":method", "POST"), (":scheme", "http")]),
    )  # fmt: skip
    for number, block in enumerate(heads):
        stream = 2 * number + 1
        one.send(_frame(HEADERS, END_HEADERS, stream, bytes(block)))
        assert one.answer(stream).reset == PROTOCOL
    assert one.ask(101, LIVE).messages == [b"\x08\x01"]
    # A call that has been ended, and bytes for it that were on their way.
    one.send(_frame(DATA, END_STREAM, 1, b"late"))
    # Trailers end a call as its last message does; other heads may not follow.
    one.send(_frame(HEADERS, END_HEADERS, 103, one.head(LIVE)) + _frame(DATA, 0, 103, bytes(5)))
    one.send(_frame(HEADERS, END_HEADERS | END_STREAM, 103, bytes(one.encoder.encode([("x", "y")]))))
    assert one.answer(103).status == 0
    one.send(_frame(HEADERS, END_HEADERS, 105, one.head(LIVE)) + _frame(HEADERS, END_HEADERS, 105, one.head(LIVE)))
    assert one.answer(105).reset == PROTOCOL
    assert one.ask(107, LIVE).status == 0


def test_what_is_no_call_of_ours_is_answered_as_grpc_answers_it(talk: Callable[..., Any]) -> None:
    one = talk()
    unknown = one.ask(1, "ModelInfre")
    assert unknown.status == 12
    assert 'did you mean "/inference.GRPCInferenceService/ModelInfer"' in unknown.head["grpc-message"]
    for stream, changes, status in ((3, {":method": "GET"}, "405"), (5, {"content-type": "text/html"}, "415")):
        one.send(_frame(HEADERS, END_HEADERS | END_STREAM, stream, one.head(LIVE, **changes)))
        assert one.answer(stream).head[":status"] == status
    long = one.ask(7, LIVE, b"", ("x", "y" * 12_000), ("z", "y" * 12_000), ("w", "y" * 12_000))
    assert long.status == 3
    assert "the head of the call is longer than" in long.head["grpc-message"]
    one.send((200_000).to_bytes(3, "big") + _frame(HEADERS, END_HEADERS, 9)[3:])
    assert one.goaway() == FRAME_SIZE


def test_a_head_without_end_and_one_that_grows_when_it_is_read_are_not_kept(talk: Callable[..., Any]) -> None:
    one = talk()
    one.send(
        _frame(HEADERS, 0, 1, one.head(LIVE)) + b"".join(_frame(CONTINUATION, 0, 1, b"x" * 16_000) for _ in range(4))
    )
    assert one.goaway() == CALM
    one = talk()
    entry = bytes(one.head(LIVE, ("x", "y" * 4000)))  # is in the table from here on, and a byte says so much again
    one.send(_frame(HEADERS, END_HEADERS | END_STREAM, 1, entry + b"\xbe" * 16_000))
    assert one.goaway() == CALM


def test_a_call_sends_no_more_than_its_window(talk: Callable[..., Any]) -> None:
    """Which is opened again when its messages have been taken: not here, where an answer cannot go."""
    one = talk(settings=_setting(4, 0))
    one.send(_frame(HEADERS, END_HEADERS, 1, one.head("ModelStreamInfer")) + _frame(DATA, 0, 1, bytes(10)))
    one.pong()
    for _ in range(15):
        one.send(_frame(DATA, 0, 1, (b"\0\0\x0f\xff\xfb" + bytes((1 << 20) - 5))))
    one.pong()
    assert not one.answers[1].data
    assert one.answers[1].reset is None
    one.send(_frame(DATA, 0, 1, bytes((1 << 20) - 9)))
    assert one.answer(1).reset == FLOW_CONTROL
    assert {stream for kind, _, stream, _ in one.seen if kind == WINDOW_UPDATE} == {0}


def test_windows_are_opened_again_while_a_long_message_comes(talk: Callable[..., Any]) -> None:
    one = talk()
    one.send(_frame(HEADERS, END_HEADERS, 1, one.head("ModelInfer")))
    one.send(_frame(DATA, 0, 1, b"\0\3\0\0\0" + bytes((1 << 20) - 5)))
    for _ in range(47):
        one.send(_frame(DATA, 0, 1, bytes(1 << 20)))
    one.pong()
    opened = [(s, struct.unpack(">I", p)[0]) for kind, _, s, p in one.seen if kind == WINDOW_UPDATE]
    for stream in (0, 1):
        given = sum(size for s, size in opened[1:] if s == stream)
        assert 40 << 20 <= given <= 48 << 20


def test_a_connection_has_so_many_calls_and_the_next_may_come_again(talk: Callable[..., Any]) -> None:
    one = talk()
    block = bytes(one.head("ModelInfer"))
    one.send(_frame(HEADERS, END_HEADERS, 1, block))
    again = bytes(one.head("ModelInfer"))
    one.send(b"".join(_frame(HEADERS, END_HEADERS, 2 * n + 1, again) for n in range(1, 1025)))
    assert one.answer(2 * 1024 + 1).reset == REFUSED
    one.send(_frame(RST, 0, 1, b"\0\0\0\x08"))
    assert one.ask(3001, LIVE).status == 0


def test_connections_and_bodies_are_counted_with_those_of_http(model_file: Path, tmp_path: Path, talk: Any) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(
        f'models = ["{model_file}"]\nthreads = 1\ngrpc_port = 0\ntrusted_proxy = ["192.0.2.1"]\n'
        "[limits]\npeer_connections = 3\nmax_buffered = 40000\n"
    )
    with running(arguments=["--config", str(config), "--quiet"]) as server:
        one, two = talk(server), talk(server)
        for each in (one, two):
            assert each.ask(1, LIVE).status == 0
        with httpx.Client(timeout=60) as client:
            assert client.get(server.url + "/v2/health/live").status_code == 200
            three = talk(server)
            assert three.goaway() == CALM
            assert "calibrant_grpc_connections_refused_total 1" in client.get(server.url + "/metrics").text
        one.send(_frame(HEADERS, END_HEADERS, 3, one.head("ModelInfer")) + _frame(DATA, 0, 3, bytes([0, 0, 0, 99, 99])))
        one.send(_frame(DATA, 0, 3, bytes(8000)))
        refused = one.answer(3)
        assert refused.status == 8
        assert "from your address" in refused.head["grpc-message"]
        assert one.ask(5, LIVE).status == 0
        log = server.log.read_text()
    assert "Traceback" not in log


def test_a_server_that_is_told_to_stop_answers_what_it_has_begun(model_file: Path, talk: Callable[..., Any]) -> None:
    with running(model_file, arguments=["--threads", "1", "--grpc-port", "0"]) as server:
        idle, busy = talk(server), talk(server)
        idle.pong()
        busy.send(_frame(HEADERS, END_HEADERS, 1, busy.head("ModelMetadata")))
        busy.send(_frame(HEADERS, END_HEADERS, 3, busy.head("ModelStreamInfer")))  # nothing is under way on it
        watch = busy.head("/grpc.health.v1.Health/Watch")
        busy.send(_frame(HEADERS, END_HEADERS, 5, watch) + _frame(DATA, END_STREAM, 5, bytes(5)))
        busy.pong()
        os.kill(server.pid, signal.SIGTERM)
        assert idle.goaway() == NO_ERROR
        busy.until(lambda: busy.count(GOAWAY) == 2)
        last = [struct.unpack(">II", p)[0] for kind, _, _, p in busy.seen if kind == GOAWAY]
        assert last == [2**31 - 1, 5]
        assert [busy.answer(stream).status for stream in (3, 5)] == [14, 14]  # UNAVAILABLE: elsewhere, or again
        busy.send(_frame(HEADERS, END_HEADERS, 7, busy.head(LIVE)))
        busy.send(_frame(DATA, END_STREAM, 1, b"\0\0\0\0\x07\x0a\x05birds"))
        assert busy.answer(7).reset == REFUSED
        assert busy.answer(1).status == 0
        assert busy.goaway() == NO_ERROR
        assert "were cut" not in server.log.read_text()


@pytest.mark.skipif(shutil.which("openssl") is None or os.name != "posix", reason="openssl, SIGHUP")
def test_tls_is_spoken_as_h2_and_a_renewed_certificate_is_served(model_file: Path, tmp_path: Path) -> None:
    triton = pytest.importorskip("tritonclient.grpc")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def renew() -> None:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
            check=True, capture_output=True,
        )  # fmt: skip

    renew()
    arguments = ["--threads", "1", "--grpc-port", "0", "--tls-cert", str(cert), "--tls-key", str(key)]
    with running(model_file, arguments=arguments) as server:
        for _ in range(2):
            at = f"{server.host}:{server.grpc_port}"
            with triton.InferenceServerClient(at, ssl=True, root_certificates=str(cert)) as client:
                assert client.is_server_live()
                assert client.get_model_metadata("birds").name == "birds"
            assert _agreed(server, cert) == "h2"
            renew()
            os.kill(server.pid, signal.SIGHUP)
            while ssl.get_server_certificate((server.host, server.grpc_port)) != cert.read_text():
                pass


def _agreed(server: Running, cert: Path) -> str | None:
    import socket

    context = ssl.create_default_context(cafile=str(cert))
    context.set_alpn_protocols(["http/1.1", "h2"])
    with (
        socket.create_connection((server.host, server.grpc_port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        return secure.selected_alpn_protocol()
