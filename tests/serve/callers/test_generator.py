from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.errors import DataError
from calibrant.serve.callers.bench import bench_serve
from calibrant.serve.callers.caller import Caller
from calibrant.serve.callers.generator import Load, Outcome, _Meter, run


class Stalling:
    """A server that answers at once, but once stands still for half a second."""

    def __init__(self) -> None:
        self.stalled = False

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                if not self.stalled and asyncio.get_running_loop().time() > self.at:
                    self.stalled = True
                    self.until = asyncio.get_running_loop().time() + 0.5
                wait = getattr(self, "until", 0) - asyncio.get_running_loop().time()
                if wait > 0:
                    await asyncio.sleep(wait)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def test_the_open_loop_charges_a_stall_to_every_request_that_was_due() -> None:
    """100 a second for 2 s with a stall of 0.5 s: about 50 requests wait, a quarter of all, evenly up to 0.5 s."""

    async def main() -> np.ndarray:
        server = Stalling()
        server.at = asyncio.get_running_loop().time() + 0.5
        listener = await asyncio.start_server(server, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        load = Load(clients=2, seconds=2.0, rate=100.0, warm_seconds=0.2)
        outcome = await run(f"http://127.0.0.1:{port}", b"GET / HTTP/1.1\r\n\r\n", load)
        listener.close()
        await asyncio.sleep(0.05)
        assert outcome.failed == outcome.unanswered == 0
        assert abs(outcome.ok - 200) <= 2
        return outcome.latencies

    latencies = asyncio.run(main())
    assert (latencies > 0.1).sum() > 25  # 40, and more where the machine stalls as well
    assert latencies.max() > 0.4


def test_a_request_that_the_generator_itself_sends_late_counts_from_when_it_was_due() -> None:
    """100 a second, more callers than requests, so that none ever waits for a free one; the whole process, and so the
    schedule, stands still for 1 s. The 90 requests that fell due in the first 0.9 s of it are at least 0.1 s late,
    however fast they are answered once they are sent."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def main() -> np.ndarray:
        listener = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        asyncio.get_running_loop().call_later(0.5, time.sleep, 1.0)
        load = Load(clients=250, seconds=2.0, rate=100.0, warm_seconds=0.0)
        outcome = await run(f"http://127.0.0.1:{port}", b"GET / HTTP/1.1\r\n\r\n", load)
        listener.close()
        await asyncio.sleep(0.05)
        assert outcome.failed == outcome.unanswered == 0
        return outcome.latencies

    latencies = asyncio.run(main())
    assert (latencies > 0.1).sum() >= 85
    assert latencies.max() > 0.9


FOREIGN = {
    "in chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1;x=y\r\n{\r\n1\r\n}\r\n0\r\nX: y\r\n\r\n",
    "closing after each": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: Close\r\n\r\n{}",
    "as in 1996": b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n{}",
    "with a word before": b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length:2\r\n\r\n{}",
    "not at all": b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
    "without a body": b"HTTP/1.1 204 No Content\r\n\r\n",
}


@pytest.mark.parametrize(
    ("answer", "rate"),
    [*((answer, None) for answer in FOREIGN.values()), *((FOREIGN[how], 60.0) for how in list(FOREIGN)[:2])],
    ids=[*FOREIGN, *(f"{how}, open loop" for how in list(FOREIGN)[:2])],
)
def test_servers_of_others_answer_in_other_ways(answer: bytes, rate: float | None) -> None:
    asked = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while asked.append(await reader.readuntil(b"\r\n\r\n")) is None:
                for n in range(0, len(answer), 7):  # in pieces
                    writer.write(answer[n : n + 7])
                    await asyncio.sleep(0)
                if b"lose\r\n" in answer or b"HTTP/1.0" in answer:
                    break
        writer.close()

    async def main() -> Outcome:
        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        load = Load(clients=3, seconds=0.7, rate=rate, warm_seconds=0.0)
        outcome = await run(f"http://127.0.0.1:{port}", b"GET / HTTP/1.1\r\n\r\n", load)
        listener.close()
        await asyncio.sleep(0.05)
        return outcome

    outcome = asyncio.run(main())
    if b" 204 " in answer:
        assert outcome.failed > 3
        assert list(outcome.errors) == ["204: "]
    elif b"many" in answer:
        assert outcome.failed > 3
        assert all("no HTTP answer" in said for said in outcome.errors)
    else:
        assert outcome.failed == outcome.unanswered == 0, outcome.errors
        assert outcome.ok > 3  # more than one for each of three connections
    assert outcome.ok + outcome.failed <= len(asked)


def test_a_server_that_hangs_or_hangs_up_is_reported() -> None:
    async def main(hang: bool) -> Outcome:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if hang:
                with contextlib.suppress(ConnectionError):
                    await reader.read()
            writer.close()

        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        load = Load(clients=2, seconds=1.0, warm_seconds=0.1)
        outcome = await run(f"http://127.0.0.1:{port}", b"GET / HTTP/1.1\r\n\r\n", load)
        listener.close()
        await asyncio.sleep(0.05)
        return outcome

    assert asyncio.run(main(True)).unanswered == 2
    hung_up = asyncio.run(main(False))
    assert hung_up.ok == 0
    assert hung_up.failed > 0
    assert "closed" in str(hung_up.errors)


def test_a_foreign_or_guarded_server_is_measured(model_file: Path) -> None:
    """Without a repository index, under a path, behind a token."""

    class Guarded(http.server.BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None: ...

        def _reply(self, body: dict[str, object], status: int = 200) -> None:
            allowed = self.headers.get("Authorization") == "Bearer t" and self.path.startswith("/below/v2/models/m")
            data = json.dumps(body).encode()
            self.send_response(status if allowed else 404)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self._reply({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._reply({"outputs": []})

    class Quiet(http.server.ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """The tool hangs up at its end; a traceback would stand in its output."""

    with Quiet(("127.0.0.1", 0), Guarded) as server:
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}/below/"
        options = ["--clients", "2", "--seconds", "1", "--header", "Authorization: Bearer t"]
        try:
            unnamed = CliRunner().invoke(bench_serve, [url, *options])
            assert "--model" in str(unnamed.exception)
            found = CliRunner().invoke(bench_serve, [url, *options, "--model", "m", "--json"])
            assert found.exit_code == 0, found.output
            assert json.loads(found.stdout)["ok"] > 0
            wrong = CliRunner().invoke(bench_serve, [url, *options[:-1], "no colon", "--model", "m"])
            assert "--header" in str(wrong.exception)
        finally:
            server.shutdown()


def test_the_tool_reports_what_the_server_gave(model_file: Path) -> None:
    result = CliRunner().invoke(bench_serve, [str(model_file), "--clients", "4", "--seconds", "2", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["ok"] > 0
    assert report["failed"] == 0
    assert report["p50_ms"] <= report["p99_ms"]
    assert report["share_of_raw"] == pytest.approx(report["requests_per_second"] / report["raw_rows_per_second"])


def test_json_tensors_and_open_loop_on_a_running_server(url: str) -> None:
    arguments = [url, "--clients", "2", "--seconds", "0.5", "--rate", "40", "--json-tensors"]
    result = CliRunner().invoke(bench_serve, arguments)
    assert result.exit_code == 0, result.output
    assert "40 requests/s" in result.output


def test_requests_at_random_come_as_often_and_not_at_even_steps(url: str) -> None:
    """Of the times between 100 of them, an exponential law has 10 below a tenth of the mean, even steps none."""
    sent: list[float] = []

    class Noting(_Meter):
        def answered(self, caller: Caller, status: int, body: bytes) -> None:
            sent.append(caller.sent)
            super().answered(caller, status, body)

    async def main() -> None:
        at = urlsplit(url)
        meter = Noting(Load(clients=64, seconds=1.0, rate=200.0, at_random=True, warm_seconds=0.0), loop())
        request = b"GET /v2 HTTP/1.1\r\nhost: x\r\n\r\n"

        async def connect(caller: Caller) -> None:
            await loop().create_connection(lambda: caller, str(at.hostname), at.port)

        meter.callers = [Caller(request, connect, meter.answered) for _ in range(64)]
        for caller in meter.callers:
            await connect(caller)
        await meter.measure()
        for caller in meter.callers:
            caller.close()

    loop = asyncio.get_running_loop
    asyncio.run(main())
    gaps = np.diff(np.sort(sent))
    assert 120 < len(sent) < 290
    assert 0.04 < (gaps < 0.1 / 200).mean() < 0.2


def test_no_server_is_said(tmp_path: Path) -> None:
    result = CliRunner().invoke(bench_serve, ["http://127.0.0.1:9"])
    assert isinstance(result.exception, DataError)
    assert "no server answers" in str(result.exception)
    with pytest.raises(DataError, match="no server answers"):
        asyncio.run(run("http://127.0.0.1:9", b"", Load(clients=1)))
