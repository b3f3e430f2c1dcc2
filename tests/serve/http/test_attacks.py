"""Callers who mean harm, at a real server: the others are answered all the same."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import psutil
import pytest
from PIL import Image

from calibrant.serve.processes.background import Running, running

INFER = "/v2/models/birds/infer"
MANY = 64 << 20  # the largest body that is taken
ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 needs no setting up there")


@pytest.fixture(scope="module")
def guarded(model_file: Path) -> Iterator[Running]:
    """Asks for a token, and trusts no address on this machine."""
    arguments = ["--threads", "1", "--quiet", "--token", "s3cret", "--trusted-proxy", "192.0.2.1"]
    with running(model_file, arguments=arguments) as server:
        yield server


def _good(server: Running, tiny: ModuleType, source: str = "127.0.0.1") -> int:
    pixels = tiny.pictures(1)
    entry = {"name": "images", "shape": list(pixels.shape), "datatype": "UINT8", "data": pixels.ravel().tolist()}
    transport = httpx.HTTPTransport(local_address=source)
    with httpx.Client(transport=transport, timeout=60) as client:
        headers = {"Authorization": "Bearer s3cret"}
        return client.post(server.url + INFER, json={"inputs": [entry]}, headers=headers).status_code


def _connect(server: Running, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection((server.host, server.port), timeout=60, source_address=(source, 0))


def _head(length: int, *, token: str = "", extra: str = "") -> bytes:
    authorization = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"POST {INFER} HTTP/1.1\r\nHost: a\r\n{authorization}{extra}Content-Length: {length}\r\n\r\n".encode()


def _answer(s: socket.socket) -> tuple[int, Any]:
    reply = http.client.HTTPResponse(s)
    reply.begin()
    return reply.status, json.loads(reply.read())


def test_bodies_that_are_announced_and_do_not_come_stop_nobody(model_file: Path, tiny: ModuleType) -> None:
    """A hundred times 64 MiB announced with one byte each, six times what all bodies may take together."""
    with running(model_file, arguments=["--threads", "1", "--quiet"]) as server, contextlib.ExitStack() as stack:
        before = psutil.Process(server.pid).memory_info().rss
        for _ in range(100):
            s = stack.enter_context(_connect(server))
            s.sendall(_head(MANY) + b"{")
        time.sleep(0.2)
        assert [_good(server, tiny) for _ in range(20)] == [200] * 20
        assert psutil.Process(server.pid).memory_info().rss - before < 64 << 20


@pytest.mark.parametrize("extra", ["", "Expect: 100-continue\r\n"])
def test_who_may_not_ask_is_told_before_the_body(guarded: Running, extra: str) -> None:
    for head, status in (
        (_head(MANY, extra=extra), 401),
        (_head(MANY, token="wrong", extra=extra), 401),
        (_head(MANY, token="s3cret", extra=extra).replace(b"birds", b"eggs"), 404),
        (_head(MANY, token="s3cret", extra=extra).replace(b"/infer", b"/inger"), 404),
        (_head(MANY, token="s3cret", extra=extra).replace(b"POST", b"PUT"), 405),
    ):
        with _connect(guarded) as s:
            s.sendall(head)
            got, said = _answer(s)  # no 100 Continue, no waiting for 64 MiB
            assert (got, "error" in said) == (status, True)
            assert s.recv(100) == b""


def test_a_chunked_body_of_somebody_unknown_is_not_read(guarded: Running) -> None:
    with _connect(guarded) as s:
        s.sendall(f"POST {INFER} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        assert _answer(s)[0] == 401


def test_a_small_body_that_was_in_vain_costs_no_connection(guarded: Running) -> None:
    with _connect(guarded) as s:
        for _ in range(2):
            s.sendall(_head(2))
            time.sleep(0.05)
            s.sendall(b"{}")
            assert _answer(s)[0] == 401


@ONLY_LINUX
def test_one_address_cannot_take_all_connections(guarded: Running, tiny: ModuleType) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(256):
            stack.enter_context(_connect(guarded, "127.0.0.3"))
        s = stack.enter_context(_connect(guarded, "127.0.0.3"))
        status, said = _answer(s)
        assert status == 503
        assert "your address has 256 connections" in said["error"]
        assert _good(guarded, tiny, "127.0.0.4") == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" + b"[7]," * 15_000_000 + b"0]", 413), (b"[" + b"{}," * 6_000_000 + b"0]", 413),
        (b"[" + b'{"a":1},' * 2_000_000 + b"0]", 413), (b"[" + b"[7]," * 4_000_000 + b"0]", 400),
        (b"[" + b"7," * 10_000_000 + b"0]", 400), (b'"' + b"a" * 20_000_000 + b'"', 400),
    ],
    ids=["length", "objects", "keys", "lists", "numbers", "text"],
)  # fmt: skip
def test_a_body_of_millions_of_things_holds_up_nobody(
    body: bytes, status: int, model_file: Path, tiny: ModuleType
) -> None:
    """60 MB of it took the event loop for seconds and a gigabyte."""
    shape = b'"shape":[1,16,16,3],"datatype":"UINT8"'
    body = b'{"inputs":[{"name":"images",' + shape + b',"data":' + body + b"}]}"
    with running(model_file, arguments=["--threads", "1", "--quiet"]) as server:
        process, answers = psutil.Process(server.pid), []
        before = process.memory_info().rss

        def attack() -> None:
            for _ in range(3):
                with _connect(server) as s:
                    s.sendall(_head(len(body)) + body)
                    answers.append(_answer(s))

        attacker = threading.Thread(target=attack)
        waits, most = [], 0
        with httpx.Client(timeout=60) as client:
            entry = {"name": "images", "shape": [1, 16, 16, 3], "datatype": "UINT8", "data": [7] * 768}
            content = json.dumps({"inputs": [entry]}).encode()
            attacker.start()
            while attacker.is_alive():
                start = time.monotonic()
                assert client.post(server.url + INFER, content=content).status_code == 200
                waits.append(time.monotonic() - start)
                most = max(most, process.memory_info().rss)
                time.sleep(0.002)
        assert {got for got, _ in answers} <= {status, 504}  # the latter on a machine that has no time for it
        assert max(waits) < 1.0
        assert most - before < 128 << 20


def test_pictures_that_are_none_leave_room_for_others(model_file: Path) -> None:
    """Each counted for ever as one that waits, and after 64 for each core all pictures were refused."""
    with running(model_file, arguments=["--threads", "1", "--quiet"]) as server, httpx.Client(timeout=60) as client:
        for _ in range(64 * (os.cpu_count() or 1) + 1):
            assert client.post(server.url + "/predict", content=b"none").status_code == 400
        picture = io.BytesIO()
        Image.new("RGB", (40, 60)).save(picture, "png")
        assert client.post(server.url + "/predict", content=picture.getvalue()).status_code == 200


@pytest.mark.parametrize("kind", ["picture", "form", "many"])
def test_large_pictures_that_are_none_are_forgotten(model_file: Path, kind: str) -> None:
    """What failed held the bodies in circles that the garbage collector found after a gigabyte."""
    head = b'--b\r\nContent-Disposition: form-data; name="x"; filename="a"\r\n\r\n'
    body = {
        "picture": b"a" * 60_000_000,
        "form": head + b"a" * 60_000_000 + b"\r\n--b--\r\n",
        "many": (head + b"a" * 1_800_000 + b"\r\n") * 32 + b"--b--\r\n",
    }[kind]
    headers = {} if kind == "picture" else {"Content-Type": "multipart/form-data; boundary=b"}
    with running(model_file, arguments=["--threads", "1", "--quiet"]) as server, httpx.Client(timeout=60) as client:
        process = psutil.Process(server.pid)
        before, after = process.memory_info().rss, []
        for _ in range(8):
            assert client.post(server.url + "/predict", content=body, headers=headers).status_code == 400
            after.append(process.memory_info().rss - before)
        assert max(after) < 96 << 20  # one of them, and a part of the next
