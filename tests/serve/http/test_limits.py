from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import http.client
import json
import random
import socket
import sys
import threading
import time
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil
import pytest

from calibrant.serve.access import Access
from calibrant.serve.body_memory import BODIES
from calibrant.serve.control import Control
from calibrant.serve.http.app import Application
from calibrant.serve.http.connection import Connection
from calibrant.serve.http.connections import Connections
from calibrant.serve.http.handlers import LARGE_FORM
from calibrant.serve.http.message import Request
from calibrant.serve.http.picture_api import read as read_pictures
from calibrant.serve.http.request_reader import DISCARD_AT_ONCE, PASSED_SECONDS
from calibrant.serve.inference import MOST_LARGE, Inference
from calibrant.serve.limits import THIS_MACHINE, Limits
from calibrant.serve.models.model import Model
from calibrant.serve.models.repository import Repository
from calibrant.serve.processes.background import running
from calibrant.serve.protocol.body import LARGE_JSON
from calibrant.serve.protocol.content_encoding import decompress
from calibrant.serve.protocol.errors import Refusal

INFER = "/v2/models/birds/infer"


def _message(pixels: Any, **changes: Any) -> bytes:
    entry = {"name": "images", "shape": list(pixels.shape), "datatype": "UINT8", "data": pixels.ravel().tolist()}
    entry.update(changes)
    return json.dumps({"inputs": [entry]}).encode()


def _request(body: bytes, path: str = INFER) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class InProcess:
    """A server on the event loop of a thread, so that its limits can be small."""

    def __init__(self, path: Path, limits: Limits, *, trusted: Any = THIS_MACHINE) -> None:
        self.repository = Repository()
        self.inference = Inference(self.repository, limits)
        app = Application(self.inference, Control(self.repository), Access())
        self.connections = Connections(app, limits, gate=app.gate, trusted=trusted)
        self.repository.add(Model.load(path, threads=1, deliver=self.inference.deliver))
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    async def _main(self) -> None:
        self.loop = self.inference.loop = asyncio.get_running_loop()
        self.stop = asyncio.Event()
        server = await self.loop.create_server(self.connections.connection, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        while not self.stop.is_set():
            self.connections.sweep()
            await asyncio.sleep(0.02)
        server.close()
        for connection in list(self.connections.open):
            connection.abort()
        await asyncio.sleep(0.01)

    def __enter__(self) -> InProcess:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.stop.set)
        self._thread.join(60)
        for model in self.repository.all():
            model.batcher.close()
        self.inference.close()
        gc.collect()

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60, source_address=(source, 0))

    def only_connection(self) -> Connection:
        (connection,) = self.connections.open
        return connection


def _answer(s: socket.socket) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Status, headers and body, in however many pieces they come."""
    reply = http.client.HTTPResponse(s)
    reply.begin()
    return reply.status, reply.headers, reply.read()


def _until(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.005)


LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"


def test_a_large_request_is_asked_about_before_its_body_and_admitted_when_it_is_whole(
    model_file: Path, monkeypatch: Any
) -> None:
    asked: list[bytes] = []
    admit = Application._admit

    def counted(self: Application, request: Request) -> Any:
        asked.append(request.target)
        return admit(self, request)

    monkeypatch.setattr(Application, "_admit", counted)
    with InProcess(model_file, Limits()) as server, server.connect() as s:
        message = _request(b"x" * 100_000)
        s.sendall(message[:200])
        _until(lambda: asked)
        s.sendall(message[200:])
        assert _answer(s)[0] == 400  # no JSON
        assert asked == [INFER.encode()] * 2
        s.sendall(message[:200])  # the same head again: nobody asks before its body
        s.sendall(message[200:])
        assert _answer(s)[0] == 400
        assert asked == [INFER.encode()] * 3
        (head,) = server.connections.heads.values()
        assert 0 < head.passed - time.monotonic() <= PASSED_SECONDS
        head.passed = 0.0
        s.sendall(message[:200])
        _until(lambda: len(asked) == 4)


def test_a_head_or_body_that_never_ends_is_given_up(model_file: Path) -> None:
    """Each state has its own time; the sweep ends a connection whose time is over (its clock is turned, not waited)."""
    limits = Limits(header_seconds=100, body_seconds=300, idle_seconds=500)
    with InProcess(model_file, limits) as server:
        for part, seconds in ((b"POST /v2", 100), (_request(b"x" * 100)[:-50], 300)):
            with server.connect() as s:
                start = time.monotonic()
                s.sendall(part)
                _until(lambda: server.connections.open and not server.only_connection().idle)
                connection = server.only_connection()
                _until(lambda: start + seconds <= connection.deadline <= time.monotonic() + seconds)  # noqa: B023
                connection.deadline = 0.0
                status, headers, _ = _answer(s)
                assert (status, headers["connection"]) == (408, "close")
            _until(lambda: not server.connections.open)
        with server.connect() as s:  # an idle connection is not answered, just closed when its time is over
            s.sendall(LIVE)
            assert _answer(s)[0] == 200
            connection = server.only_connection()
            _until(lambda: connection.idle)
            assert 400 < connection.deadline - time.monotonic() <= 500
            connection.deadline = 0.0
            assert s.recv(100) == b""


def test_connections_above_the_limit_are_told_so(model_file: Path) -> None:
    with InProcess(model_file, Limits(max_connections=3)) as server:
        held = [server.connect() for _ in range(3)]
        for s in held:
            s.sendall(LIVE)
            assert _answer(s)[0] == 200
        with server.connect() as s:
            status, headers, _ = _answer(s)
            assert (status, headers["retry-after"]) == (503, "1")
        for s in held:
            s.close()
        _until(lambda: not server.connections.open)
        with server.connect() as s:
            s.sendall(LIVE)
            assert _answer(s)[0] == 200


def test_a_full_queue_refuses_at_once_with_retry_after(model_file: Path, tiny: ModuleType) -> None:
    with InProcess(model_file, Limits(max_wait=1.0)) as server:
        model = server.repository.get("birds")
        model.batcher._row_seconds, model.batcher._waiting_rows = 2.0, 3  # as if 6 s of work were ahead
        with server.connect() as s:
            s.sendall(_request(_message(tiny.pictures(1))))
            status, headers, body = _answer(s)
        model.batcher._waiting_rows = 0
        assert (status, headers["retry-after"]) == (503, "3")
        assert b"about 6.0 s of work" in body


class Held:
    """Makes a model's runs wait for leave, and keeps their sizes."""

    def __init__(self, model: Model) -> None:
        self.leave, self.runs, self._run = threading.Event(), [], model.session.run  # type: ignore[var-annotated]
        model.session.run = self  # type: ignore[method-assign,assignment]

    def __call__(self, feeds: Any, outputs: Any = None) -> Any:
        self.runs.append(len(feeds["images"]))
        assert self.leave.wait(60)
        return self._run(feeds, outputs)


def test_a_deadline_missed_in_the_queue_is_a_504(model_file: Path, tiny: ModuleType) -> None:
    with InProcess(model_file, Limits()) as server:
        model = server.repository.get("birds")
        held = Held(model)
        with server.connect() as first, server.connect() as second:
            first.sendall(_request(_message(tiny.pictures(1))))
            _until(lambda: held.runs == [1])
            body = json.loads(_message(tiny.pictures(1)))
            second.sendall(_request(json.dumps({**body, "parameters": {"timeout": 50_000}}).encode()))
            _until(lambda: model.batcher.waiting == 1)
            time.sleep(0.06)  # its deadline is 50 ms after it came
            held.leave.set()
            assert _answer(first)[0] == 200
            status, _, said = _answer(second)
            assert status == 504
            assert b"deadline passed" in said


def test_a_caller_that_leaves_takes_its_request_with_it(model_file: Path, tiny: ModuleType) -> None:
    with InProcess(model_file, Limits()) as server:
        model = server.repository.get("birds")
        held = Held(model)
        with server.connect() as first, server.connect() as second:
            first.sendall(_request(_message(tiny.pictures(1))))
            _until(lambda: held.runs == [1])
            second.sendall(_request(_message(tiny.pictures(3))))
            _until(lambda: model.batcher.waiting == 1)
            second.close()
            _until(lambda: len(server.connections.open) == 1)
            held.leave.set()
            assert _answer(first)[0] == 200
        _until(lambda: model.active == 0)
        assert held.runs == [1]
        assert model.statistics.cancelled == 1


def test_a_request_leaves_memory_without_the_garbage_collector(model_file: Path, tiny: ModuleType) -> None:
    """Bodies are large: a cycle would keep hundreds of megabytes until a collection happens to run."""
    kept: list[weakref.ref[Any]] = []
    with InProcess(model_file, Limits()) as server:
        model = server.repository.get("birds")
        run = model.session.run

        def watched(feeds: Any, outputs: Any = None) -> Any:
            kept.append(weakref.ref(feeds["images"]))
            return run(feeds, outputs)

        model.session.run = watched  # type: ignore[method-assign]
        gc.collect()
        gc.disable()
        try:
            with server.connect() as s:
                for _ in range(3):
                    s.sendall(_request(_message(tiny.pictures(1))))
                    assert _answer(s)[0] == 200
            _until(lambda: not server.connections.open)
            _until(lambda: len(kept) == 3 and not any(ref() is not None for ref in kept), seconds=20)
        finally:
            gc.enable()


def test_bodies_in_memory_are_bounded_together(model_file: Path) -> None:
    with InProcess(model_file, Limits(max_buffered=1000)) as server:
        with server.connect() as s, server.connect() as t:
            s.sendall(_request(b"x" * 800)[:-10])
            _until(lambda: server.connections.room.buffered > 700)
            t.sendall(_request(b"x" * 800))
            assert _answer(t)[0] == 503
        _until(lambda: server.connections.room.buffered == 0)


def test_large_json_is_read_by_another_process_and_small_is_not(model_file: Path, tiny: ModuleType) -> None:
    pixels = tiny.pictures(1)
    nested = pixels.reshape(pixels.shape).tolist()
    with InProcess(model_file, Limits()) as server, server.connect() as s:
        started = []
        for text in (_message(pixels), _message(pixels, data=nested) + b" " * LARGE_JSON):
            s.sendall(_request(text))
            status, _, said = _answer(s)
            assert status == 200
            np.testing.assert_allclose(json.loads(said)["outputs"][0]["data"], tiny.expected(pixels)[0], atol=1e-6)
            started.append(server.inference.large.started)
        assert started == [False, True]
        s.sendall(_request(_message(pixels, datatype="FP32") + b" " * LARGE_JSON))
        status, _, said = _answer(s)
        assert (status, json.loads(said)["error"]) == (400, 'input "images" must be UINT8, got FP32')
        assert server.inference.large.waiting == 0


def test_few_requests_of_large_json_may_wait(model_file: Path, tiny: ModuleType) -> None:
    with InProcess(model_file, Limits()) as server, server.connect() as s:
        server.inference.large.waiting = MOST_LARGE
        s.sendall(_request(_message(tiny.pictures(1)) + b" " * LARGE_JSON))
        status, headers, said = _answer(s)
        assert (status, headers["Retry-After"], b"large JSON" in said) == (503, "1", True)


def test_large_pictures_are_told_apart_away_from_the_loop(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where: list[str] = []

    def watched(*asked: Any) -> Any:
        where.append(threading.current_thread().name)
        return read_pictures(*asked)

    monkeypatch.setattr("calibrant.serve.http.picture_api.read", watched)
    with InProcess(model_file, Limits()) as server, server.connect() as s:
        for size in (100, LARGE_FORM + 1):
            s.sendall(_request(b"x" * size, "/predict"))
            status, _, said = _answer(s)
            assert (status, b"not a JPEG" in said) == (400, True)
    assert [name.startswith("decode") for name in where] == [False, True]


def test_large_bodies_are_whole_one_after_another_in_the_same_memory(
    model_file: Path, tiny: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("http.request_reader", "body_memory"):
        monkeypatch.setattr(f"calibrant.serve.{place}.LARGE", 64 << 10)
    with InProcess(model_file, Limits()) as server, server.connect() as s:
        head = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nInference-Header-Content-Length: 0\r\n"
        for seed in range(3):
            pixels = np.random.default_rng(seed).integers(0, 256, (1000 - seed, 16, 16, 3)).astype(np.uint8)
            s.sendall(f"{head}Content-Length: {pixels.nbytes}\r\n\r\n".encode() + pixels.tobytes())
            status, _, said = _answer(s)
            assert status == 200
            found = np.reshape(json.loads(said)["outputs"][0]["data"], (len(pixels), -1))
            np.testing.assert_allclose(found, tiny.expected(pixels), atol=1e-5)
            _until(lambda: BODIES.kept > 0)


def test_tensors_that_no_request_has_are_refused_by_their_length(model_file: Path) -> None:
    with InProcess(model_file, Limits()) as server, server.connect() as s:
        most = server.repository.all()[0].target.most_binary
        assert most == 1024 * 16 * 16 * 3
        head = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nInference-Header-Content-Length: 0\r\n"
        s.sendall(f"{head}Content-Length: {most + 1}\r\n\r\nx".encode())
        status, _, said = _answer(s)
        assert (status, b"of 1024 rows of this model" in said) == (413, True)


def test_a_body_for_which_there_is_no_memory_is_told_so(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(size: int) -> None:
        raise MemoryError

    monkeypatch.setattr(BODIES, "take", none)
    with InProcess(model_file, Limits()) as server, server.connect() as s:
        s.sendall(_request(b"x" * 100)[:-50])
        status, _, said = _answer(s)
        assert (status, b"no memory for a body of 100 bytes" in said) == (503, True)


def test_json_that_no_request_needs_is_refused_by_its_length(model_file: Path) -> None:
    with InProcess(model_file, Limits(max_rows=1)) as server:
        most = server.repository.all()[0].target.most_json
        for length, path in ((most + 1, INFER), ((1 << 20) + 1, "/v2/repository/index")):
            with server.connect() as s:
                s.sendall(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{{".encode())
                status, _, said = _answer(s)
                assert (status, b"at most" in said) == (413, True)
        with server.connect() as s:  # whose length is not known before
            body = b"x" * (most + 1)
            s.sendall(f"POST {INFER} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            s.sendall(f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n")
            assert _answer(s)[0] == 413


def test_what_is_refused_is_not_read_as_fast_as_it_comes(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At full speed it took the loop from the others: ten times the 99th percentile of who asked beside it."""
    monkeypatch.setattr("calibrant.serve.room.BREATH", 0.05)
    monkeypatch.setattr("calibrant.serve.room.BESIDE_OTHERS", float("inf"))
    taken = []
    updated = Connection.buffer_updated
    monkeypatch.setattr(Connection, "buffer_updated", lambda self, n: (taken.append(n), updated(self, n))[1])
    with InProcess(model_file, Limits()) as server, server.connect() as s:
        s.sendall(f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: {65 << 20}\r\n\r\n".encode())
        assert _answer(s)[0] == 413
        s.settimeout(0.5)
        with contextlib.suppress(OSError):
            s.sendall(bytes(65 << 20))
        assert 0 < sum(taken) < 20 * DISCARD_AT_ONCE


def test_a_form_of_very_many_fields_is_refused(model_file: Path) -> None:
    part = b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n1\r\n'
    body = part * 97 + b"--b--\r\n"
    head = "POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: "
    with InProcess(model_file, Limits()) as server, server.connect() as s:
        for data, status in ((body, 413), (part * 96 + b"--b--\r\n", 400)):  # 400: no parameter "x"
            s.sendall(f"{head}{len(data)}\r\n\r\n".encode() + data)
            assert _answer(s)[0] == status


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 needs no setting up there")
def test_one_address_has_a_quarter_of_the_room_for_bodies(model_file: Path) -> None:
    limits = Limits(max_buffered=4000)
    with InProcess(model_file, limits, trusted=()) as server, server.connect() as s, server.connect("127.0.0.2") as t:
        s.sendall(_request(b"x" * 2000)[:-10])
        status, _, said = _answer(s)
        assert status == 503
        assert b"from your address" in said
        t.sendall(_request(b"x" * 900))
        assert _answer(t)[0] == 400  # taken, and no JSON
        _until(lambda: server.connections.room.buffered == 0)


def test_a_body_that_drips_is_given_up_and_one_that_flows_is_not(model_file: Path) -> None:
    """From 0.2 s on a body must have come at 1,000 bytes a second."""
    with InProcess(model_file, Limits(slow_seconds=0.2, body_rate=1000)) as server:
        with server.connect() as drip, server.connect() as flow:
            start = time.monotonic()
            drip.sendall(_request(b"x" * 3000)[:-2999])
            request = _request(b"x" * 3000)
            flow.sendall(request[:-100])
            status, _, said = _answer(drip)
            assert (status, b"did not arrive in time" in said) == (408, True)
            assert 0.15 < time.monotonic() - start < 30
            flow.sendall(request[-100:])  # 2,900 bytes had come, enough for 3.1 s
            assert _answer(flow)[0] == 400  # whole, and no JSON
        _until(lambda: server.connections.room.buffered == 0)


@pytest.mark.parametrize(("size", "status"), [(1000, 400), (1001, 413)])
def test_a_body_is_too_large_once_it_is_inflated(size: int, status: int, model_file: Path) -> None:
    """A thousand bytes are taken (and are no JSON); one more is not, however small it came."""
    body = gzip.compress(bytes(size))
    head = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    with InProcess(model_file, Limits(max_decompressed=1000)) as server, server.connect() as s:
        s.sendall(head.encode() + body)
        got, _, said = _answer(s)
    assert got == status
    assert (b"once decompressed" in said) is (status == 413)


@pytest.mark.parametrize(("size", "status"), [(80_000, 400), (130_000, 503)])
def test_an_inflated_body_takes_its_size_of_the_room(size: int, status: int, model_file: Path) -> None:
    """However small it came: what all bodies may take together is a promise about memory. And it is given back."""
    body = gzip.compress(bytes(size))
    head = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    with InProcess(model_file, Limits(max_buffered=100_000, peer_share=1.0)) as server:
        with server.connect() as s:
            for _ in range(3):
                s.sendall(head.encode() + body)
                assert _answer(s)[0] == status
        _until(lambda: server.connections.room.buffered == 0)


@pytest.mark.parametrize(("encoding", "status"), [("gzip", 400), ("br", 415)])
def test_what_cannot_be_decompressed(encoding: str, status: int) -> None:
    with pytest.raises(Refusal) as caught:
        decompress(memoryview(b"not compressed"), encoding, 100)
    assert caught.value.status == status


def test_a_request_that_raises_is_a_500_that_says_nothing_of_ours(
    model_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    repository = Repository()
    inference, control = Inference(repository, Limits()), Control(repository)
    control.server = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    answers: list[Any] = []
    Application(inference, control)(Request(b"GET", b"/v2", {}), answers.append)
    inference.close()
    assert answers[0].status == 500
    assert b"division" not in answers[0].parts[0]
    assert "division" in caplog.text


BAD = ("name", "dtype", "shape", "size", "json", "rows", "output", "method", "hangup", "garbage")


def _bad(kind: str, pixels: Any) -> bytes:
    bodies = {
        "name": _message(pixels, name="nothing"), "dtype": _message(pixels, datatype="FP32"),
        "shape": _message(pixels, shape=[1, 2, 3]), "json": b'{"inputs": [',
        "rows": _message(pixels, shape=[2**40, 16, 16, 3]),
        "size": _message(pixels, data=[1, 2, 3]), "output": _message(pixels)[:-1] + b', "outputs": [{"name": "x"}]}',
    }  # fmt: skip
    if kind in bodies:
        return _request(bodies[kind])
    return {"method": b"PUT /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            "hangup": _request(_message(pixels))[:-30], "garbage": b"\x00\x01\x02 rubbish\r\n\r\n"}[kind]  # fmt: skip


def _mixed(url: str, requests: int, seed: int, tiny: ModuleType, problems: list[str]) -> None:
    """One caller: a quarter of what it sends is bad, and each good answer is compared."""
    rng = random.Random(seed)
    at = urlsplit(url)
    pictures = tiny.pictures(8, seed)
    wanted = tiny.expected(pictures)
    s = socket.create_connection((at.hostname, at.port), timeout=120)
    for _ in range(requests):
        n = rng.randrange(8)
        kind = rng.choice(BAD) if rng.random() < 0.25 else None
        s.sendall(_bad(kind, pictures[n : n + 1]) if kind else _request(_message(pictures[n : n + 1])))
        if kind == "hangup":
            s.close()
            s = socket.create_connection((at.hostname, at.port), timeout=120)
            continue
        got = b""
        while b"\r\n\r\n" not in got or len(got.partition(b"\r\n\r\n")[2]) < _length(got):
            chunk = s.recv(65536)
            if not chunk:
                break
            got += chunk
        status = int(got[9:12] or b"0")
        if kind is None:
            p = json.loads(got.partition(b"\r\n\r\n")[2])["outputs"][0]["data"] if status == 200 else []
            if status != 200 or not np.allclose(p, wanted[n], atol=1e-6):
                problems.append(f"good request: {got[:200]!r}")
        elif not 400 <= status < 500:
            problems.append(f"{kind}: {got[:200]!r}")
        if b"connection: close" in got.partition(b"\r\n\r\n")[0]:
            s.close()
            s = socket.create_connection((at.hostname, at.port), timeout=120)
    s.close()


def _length(got: bytes) -> int:
    head = got.partition(b"\r\n\r\n")[0]
    return next(int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.startswith(b"content-length"))


def _mix(model_file: Path, tiny: ModuleType, total: int, callers: int) -> None:
    problems: list[str] = []
    with running(model_file, arguments=["--threads", "1", "--quiet"]) as server:
        threads = [
            threading.Thread(target=_mixed, args=(server.url, total // callers, n, tiny, problems))
            for n in range(callers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert httpx.get(server.url + "/v2/health/ready", timeout=60).status_code == 200
        assert "Traceback" not in server.log.read_text()
    assert problems == []


def test_bad_requests_among_good_ones_harm_none(model_file: Path, tiny: ModuleType) -> None:
    _mix(model_file, tiny, 1200, 6)


@pytest.mark.slow
def test_ten_thousand_requests_of_which_a_quarter_is_bad(model_file: Path, tiny: ModuleType) -> None:
    _mix(model_file, tiny, 10_000, 8)


@pytest.mark.slow
def test_a_thousand_connections_with_slow_bodies_leave_memory_flat(model_file: Path, tiny: ModuleType) -> None:
    body = _request(_message(tiny.pictures(1)))
    with running(model_file, arguments=["--threads", "1", "--quiet"]) as server:
        process = psutil.Process(server.pid)
        peaks = []
        for _ in range(3):
            at = urlsplit(server.url)
            sockets = [socket.create_connection((at.hostname, at.port), timeout=120) for _ in range(1000)]
            for s in sockets:
                s.sendall(body[: len(body) // 2])
            assert httpx.get(server.url + "/v2/health/ready", timeout=60).status_code == 200
            for s in sockets[::2]:
                s.sendall(body[len(body) // 2 :])
            assert all(_answer(s)[0] == 200 for s in sockets[::2])
            for s in sockets:
                s.close()
            _until(lambda: sum(c.status == "ESTABLISHED" for c in process.net_connections()) < 10)
            peaks.append(process.memory_info().rss / 2**20)
        assert peaks[-1] < peaks[0] + 10
        assert peaks[-1] < 250
