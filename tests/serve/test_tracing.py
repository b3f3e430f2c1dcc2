"""Traces, in OpenTelemetry's own memory exporter, and once sent to a collector by a real server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from calibrant.serve.control import Control
from calibrant.serve.grpc import wire
from calibrant.serve.http.app import Application
from calibrant.serve.http.message import Request, Response
from calibrant.serve.inference import Inference
from calibrant.serve.limits import Limits
from calibrant.serve.models.model import Model
from calibrant.serve.models.repository import Repository
from calibrant.serve.processes.background import running
from calibrant.serve.tracing import Traces, parent_of

pytest.importorskip("opentelemetry.sdk")
TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
GRPC = "/inference.GRPCInferenceService/ModelInfer"
HEADER = f"00-{TRACE:032x}-{SPAN:016x}-01".encode()


class Kept:
    """An application whose traces stay in memory."""

    def __init__(self, model_file: Path) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        repository = Repository()
        inference = Inference(repository, Limits())
        self.model = Model.load(model_file, threads=1, deliver=inference.deliver)
        repository.add(self.model)
        self.app = Application(inference, Control(repository))
        self.exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.provider = provider

    def ask(self, share: float, path: str, body: bytes = b"", **headers: bytes) -> tuple[Response, dict[str, Any]]:
        """The answer, and the spans by their names."""
        self.exporter.clear()
        self.app.traces = Traces(self.provider, share)

        async def main() -> Response:
            self.app.inference.loop = asyncio.get_running_loop()
            answer: asyncio.Future[Response] = self.app.inference.loop.create_future()
            named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
            verb = b"POST" if body else b"GET"
            request = Request(verb, path.encode(), named, memoryview(body), received=time.monotonic())
            self.app(request, answer.set_result)
            return await asyncio.wait_for(answer, 60)

        reply = asyncio.run(main())
        return reply, {span.name: span for span in self.exporter.get_finished_spans()}


@pytest.fixture(scope="module")
def kept(model_file: Path) -> Iterator[Kept]:
    found = Kept(model_file)
    yield found
    found.app.inference.close()
    found.model.batcher.close()


@pytest.fixture(scope="module")
def body(tiny: ModuleType) -> bytes:
    pixels = tiny.pictures(3)
    entry = {"name": "images", "shape": list(pixels.shape), "datatype": "UINT8", "data": pixels.ravel().tolist()}
    return json.dumps({"inputs": [entry]}).encode()


INFER = "POST /v2/models/{name}/infer"


def test_a_request_is_a_span_of_the_callers_trace_with_queue_compute_and_answer_in_it(kept: Kept, body: bytes) -> None:
    reply, spans = kept.ask(1.0, "/v2/models/birds/infer", body, traceparent=HEADER, x_request_id=b"order-7")
    assert reply.status == 200
    assert set(spans) == {INFER, "queue", "compute", "answer"}
    whole = spans[INFER]
    assert {span.context.trace_id for span in spans.values()} == {TRACE}
    assert (whole.parent.span_id, whole.parent.is_remote, whole.kind.name) == (SPAN, True, "SERVER")
    assert {spans[part].parent.span_id for part in ("queue", "compute", "answer")} == {whole.context.span_id}
    queue, compute, answer = spans["queue"], spans["compute"], spans["answer"]
    assert whole.start_time <= queue.start_time <= queue.end_time == compute.start_time
    assert compute.start_time < compute.end_time == answer.start_time <= answer.end_time == whole.end_time
    assert abs(whole.end_time - time.time_ns()) < 60e9
    assert compute.attributes["calibrant.rows"] == 3
    assert whole.attributes["calibrant.model"] == "birds"
    assert whole.attributes["calibrant.request_id"] == "order-7"
    assert whole.attributes["http.response.status_code"] == 200


def test_what_does_not_run_has_no_parts_and_refusals_are_no_failures_of_ours(kept: Kept) -> None:
    from opentelemetry.trace import StatusCode

    _, spans = kept.ask(1.0, "/v2/health/live")
    assert list(spans) == ["GET /v2/health/live"]
    assert spans["GET /v2/health/live"].parent is None
    reply, spans = kept.ask(1.0, "/nothing/here")
    assert (reply.status, list(spans)) == (404, ["GET"])
    assert spans["GET"].status.status_code == StatusCode.UNSET
    traces = Traces(kept.provider, 1.0)
    kept.exporter.clear()
    traces.answered("x", b"", time.monotonic(), None, failed=True, attributes={})
    assert kept.exporter.get_finished_spans()[0].status.status_code == StatusCode.ERROR


def test_the_access_log_names_the_callers_trace(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    kept.app.access.logged = True
    try:
        with caplog.at_level("INFO", "calibrant.serve.access"):
            kept.ask(0.0, "/v2/health/live", traceparent=HEADER)
            kept.ask(0.0, "/v2/health/live")
    finally:
        kept.app.access.logged = False
    first, second = (json.loads(record.getMessage()) for record in caplog.records)
    assert first["trace_id"] == f"{TRACE:032x}"
    assert "trace_id" not in second


def test_the_share_is_ours_whatever_a_caller_says(kept: Kept) -> None:
    """The last 64 bits of this trace id are at .52 of their range."""
    assert kept.ask(0.5, "/v2/health/live", traceparent=HEADER)[1] == {}
    assert kept.ask(0.53, "/v2/health/live", traceparent=HEADER)[1] != {}
    unsampled = HEADER[:-2] + b"00"
    assert kept.ask(0.53, "/v2/health/live", traceparent=unsampled)[1] != {}
    traces = Traces(kept.provider, 0.25)
    assert 2000 < sum(traces.chooses(None) for _ in range(10_000)) < 3000


@pytest.mark.parametrize(
    "text",
    [b"", b"00", HEADER.upper(), HEADER[:-1], HEADER + b"-more", b"ff" + HEADER[2:], b"00-" + b"0" * 32 + HEADER[35:],
     HEADER[:36] + b"0" * 16 + HEADER[52:], b"x" * 10_000],
)  # fmt: skip
def test_what_is_no_traceparent_begins_a_trace_of_its_own(text: bytes) -> None:
    assert parent_of(text) is None


def test_a_traceparent_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert parent_of(HEADER) == (TRACE, SPAN)
    assert parent_of(b"01" + HEADER[2:] + b"-more") == (TRACE, SPAN)


def test_nothing_of_it_is_imported_unless_it_is_asked_for() -> None:
    code = "import calibrant.serve.processes.server, sys; print([m for m in sys.modules if 'opentelemetry' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow  # 6 s: a real server and a collector that takes what it sends
def test_a_server_sends_its_traces_to_a_collector(
    model_file: Path, monkeypatch: pytest.MonkeyPatch, body: bytes, tiny: ModuleType
) -> None:
    """Of both transports."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    pytest.importorskip("hpack")
    grpc = pytest.importorskip("grpc")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    taken: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            import gzip

            data = self.rfile.read(int(self.headers["content-length"]))
            taken.append((self.path, gzip.decompress(data) if self.headers.get("content-encoding") == "gzip" else data))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        thread = threading.Thread(target=collector.serve_forever, daemon=True)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
        with running(model_file, arguments=["--threads", "1", "--trace-share", "1", "--grpc-port", "0"]) as server:
            headers = {"traceparent": HEADER.decode()}
            reply = httpx.post(server.url + "/v2/models/birds/infer", content=body, headers=headers, timeout=60)
            assert reply.status_code == 200
            pixels = tiny.pictures(1)
            tensor = wire.field(1, "images") + wire.field(2, "UINT8") + wire.packed(3, pixels.shape)
            message = wire.field(1, "birds") + wire.message(5, tensor) + wire.message(7, pixels.tobytes())
            with grpc.insecure_channel(f"{server.host}:{server.grpc_port}") as channel:
                other = HEADER.decode().replace(f"{TRACE:032x}", f"{TRACE + 1:032x}")
                channel.unary_unary(GRPC)(message, metadata=(("traceparent", other),), timeout=60)
        collector.shutdown()  # the server is gone, and has sent what was left
        thread.join(60)
    spans = []
    for path, data in taken:
        assert path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            named = {a.key: a.value.string_value for a in resource.resource.attributes}
            assert named["service.name"] == "calibrant"
            spans += [span for scope in resource.scope_spans for span in scope.spans]
    for trace, name in ((TRACE, INFER), (TRACE + 1, GRPC[1:])):
        ours = {span.name for span in spans if int.from_bytes(span.trace_id) == trace}
        assert ours == {name, "queue", "compute", "answer"}
