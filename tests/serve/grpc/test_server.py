from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from calibrant.serve.grpc import wire
from calibrant.serve.grpc.messages import read_request
from calibrant.serve.inference import Inference
from calibrant.serve.limits import Limits
from calibrant.serve.models.model import Model
from calibrant.serve.models.repository import Repository
from calibrant.serve.processes.background import Running, running
from calibrant.serve.protocol.errors import QueueFull, Refusal
from calibrant.serve.protocol.request import Target
from calibrant.serve.protocol.tensors import TensorSpec

triton = pytest.importorskip("tritonclient.grpc")
grpc = pytest.importorskip("grpc")
pytest.importorskip("hpack")


@pytest.fixture(scope="module")
def server(model_file: Path) -> Iterator[Running]:
    with running(model_file, arguments=["--threads", "1", "--grpc-port", "0", "--monitor"]) as started:
        yield started


@pytest.fixture
def client(server: Running) -> Iterator[Any]:
    with triton.InferenceServerClient(f"{server.host}:{server.grpc_port}") as c:
        yield c


def _input(pixels: Any, name: str = "images", datatype: str = "UINT8") -> Any:
    tensor = triton.InferInput(name, list(pixels.shape), datatype)
    tensor.set_data_from_numpy(pixels)
    return tensor


def test_tritons_client_gets_the_answers_of_the_http_front(client: Any, server: Running, tiny: ModuleType) -> None:
    pixels = tiny.pictures(3)
    outputs = [triton.InferRequestedOutput("probabilities"), triton.InferRequestedOutput("logits", class_count=2)]
    reply = client.infer("birds", [_input(pixels)], outputs=outputs, request_id="q7")
    np.testing.assert_allclose(reply.as_numpy("probabilities"), tiny.expected(pixels), atol=1e-6)
    top = reply.as_numpy("logits")
    assert top.shape == (3, 2)
    assert top[0, 0].decode().endswith(f":{tiny.CLASSES[tiny.expected(pixels)[0].argmax()]}")
    assert reply.get_response().id == "q7"
    entry = {"name": "images", "shape": [3, 16, 16, 3], "datatype": "UINT8", "data": pixels.ravel().tolist()}
    by_http = httpx.post(f"{server.url}/v2/models/birds/infer", json={"inputs": [entry]}, timeout=60).json()["outputs"][
        0
    ]["data"]
    np.testing.assert_allclose(reply.as_numpy("probabilities").ravel(), by_http, atol=1e-7)


def test_knobs_come_as_parameters(client: Any, tiny: ModuleType) -> None:
    pixels = tiny.pictures(2)
    reply = client.infer(
        "birds", [_input(pixels)], parameters={"temperature": 0.7, "target_prior": "train", "top_k": 2}
    )
    np.testing.assert_allclose(reply.as_numpy("probabilities"), tiny.expected(pixels, 0.7, 1.0, tiny.TRAIN), atol=1e-6)
    assert reply.as_numpy("top").shape == (2, 2)


def test_metadata_config_statistics_and_index(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("birds")
    assert client.get_server_metadata().name == "calibrant"
    metadata = client.get_model_metadata("birds")
    assert list(metadata.inputs[0].shape) == [-1, 16, 16, 3]
    assert [o.name for o in metadata.outputs] == ["probabilities", "logits"]
    config = client.get_model_config("birds").config
    assert config.parameters["batch_cap"].string_value.isdigit()
    assert config.default_model_filename == "birds.onnx"
    provenance = json.loads(config.parameters["calibrant"].string_value)  # metadata over gRPC has no place for it
    assert provenance["calibrator"]["method"] == "temperature"
    assert provenance["coverages"] == [0.9, 0.95]
    assert (config.backend, config.input[0].data_type, list(config.input[0].dims)) == ("onnxruntime", 2, [16, 16, 3])
    assert client.get_model_repository_index().models[0].state == "READY"
    statistics = client.get_inference_statistics("birds").model_stats[0]
    assert statistics.inference_count >= statistics.execution_count > 0


def test_typed_contents_are_read_and_checked(server: Running, tiny: ModuleType) -> None:
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    pixels = tiny.pictures(1)
    request = service_pb2.ModelInferRequest(model_name="birds")
    tensor = request.inputs.add(name="images", datatype="UINT8", shape=list(pixels.shape))
    tensor.contents.uint_contents.extend(pixels.ravel().tolist())
    with grpc.insecure_channel(f"{server.host}:{server.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        reply = stub.ModelInfer(request)
        p = np.frombuffer(reply.raw_output_contents[0], "<f4")
        np.testing.assert_allclose(p, tiny.expected(pixels)[0], atol=1e-6)
        tensor.contents.uint_contents[0] = 256
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(request)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        request.raw_input_contents.append(pixels.tobytes())
        with pytest.raises(grpc.RpcError, match="both contents and raw"):
            stub.ModelInfer(request)
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"") == b"\x08\x01"


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        ({"model": "birdz"}, "NOT_FOUND", 'did you mean "birds"'),
        ({"name": "image"}, "INVALID_ARGUMENT", 'no input "image"'),
        ({"datatype": "INT8"}, "INVALID_ARGUMENT", "must be UINT8"),
        ({"rows": 2000}, "INVALID_ARGUMENT", "more than the 1024"),
        ({"parameters": {"temperature": -1.0}}, "INVALID_ARGUMENT", "temperature"),
    ],
)
def test_mistakes_have_the_right_code(client: Any, change: dict[str, Any], code: str, says: str) -> None:
    pixels = np.zeros((change.get("rows", 1), 16, 16, 3), np.int8 if "datatype" in change else np.uint8)
    tensor = _input(pixels, change.get("name", "images"), change.get("datatype", "UINT8"))
    with pytest.raises(triton.InferenceServerException) as caught:
        client.infer(change.get("model", "birds"), [tensor], parameters=change.get("parameters"))
    assert caught.value.status() == f"StatusCode.{code}"
    assert says in caught.value.message()


def test_what_is_refused_counts_as_failed(client: Any, tiny: ModuleType) -> None:
    def failed() -> int:
        return int(client.get_inference_statistics("birds").model_stats[0].inference_stats.fail.count)

    before = failed()
    for parameters in ({"coverage": 0.5}, {"temperature": -1.0}):
        with pytest.raises(triton.InferenceServerException):
            client.infer("birds", [_input(tiny.pictures(1))], parameters=parameters)
    assert failed() == before + 2


def test_calls_are_in_the_access_log_and_counted_by_code(model_file: Path, tiny: ModuleType) -> None:
    arguments = ["--threads", "1", "--grpc-port", "0", "--quiet", "--access-log"]
    with (
        running(model_file, arguments=arguments) as server,
        triton.InferenceServerClient(f"{server.host}:{server.grpc_port}") as client,
    ):
        client.infer("birds", [_input(tiny.pictures(1))])
        for parameters in ({"coverage": 0.5}, {"temperature": -1.0}):
            with pytest.raises(triton.InferenceServerException):
                client.infer("birds", [_input(tiny.pictures(1))], parameters=parameters)
        metrics = httpx.get(server.url + "/metrics", timeout=60).text
        assert 'calibrant_grpc_requests_total{method="ModelInfer",code="OK"} 1' in metrics
        assert 'calibrant_grpc_requests_total{method="ModelInfer",code="INVALID_ARGUMENT"} 2' in metrics
        lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    calls = [line for line in lines if line["method"] == "gRPC"]
    assert [c["status"] for c in calls] == ["OK", "INVALID_ARGUMENT", "INVALID_ARGUMENT"]
    assert calls[0]["path"] == "/inference.GRPCInferenceService/ModelInfer"
    assert calls[0]["bytes"] > 0
    assert calls[0]["ms"] > 0


def test_a_message_above_grpcs_usual_4_mb_passes(client: Any, tiny: ModuleType) -> None:
    """Several small inputs make no large message, so the request carries a long parameter as well."""
    pixels = tiny.pictures(1)
    reply = client.infer("birds", [_input(pixels)], parameters={"note": "x" * (6 << 20)})
    np.testing.assert_allclose(reply.as_numpy("probabilities"), tiny.expected(pixels), atol=1e-6)


def test_a_stream_goes_on_after_an_error(client: Any, tiny: ModuleType) -> None:
    pixels, answers = tiny.pictures(1), []
    client.start_stream(lambda result, error: answers.append((result, error)))
    client.async_stream_infer("birds", [_input(pixels)])
    client.async_stream_infer("birds", [_input(pixels, "nothing")])
    client.async_stream_infer("birds", [_input(pixels)])
    end = time.monotonic() + 60
    while len(answers) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    client.stop_stream()
    assert [error is None for _, error in answers] == [True, False, True]


def test_a_model_that_is_not_there_is_not_ready(client: Any) -> None:
    """As Triton answers: callers wait in a loop until the model is ready, and an error would end it."""
    assert not client.is_model_ready("birdz")
    assert not client.is_model_ready("birds", "9")
    assert client.is_model_ready("birds", "1")


def test_tensors_in_shared_memory_are_refused_by_name(client: Any, tiny: ModuleType) -> None:
    pixels = tiny.pictures(1)
    output = triton.InferRequestedOutput("probabilities")
    output.set_shared_memory("region", 16)
    with pytest.raises(triton.InferenceServerException, match="shared memory"):
        client.infer("birds", [_input(pixels)], outputs=[output])
    tensor = triton.InferInput("images", list(pixels.shape), "UINT8")
    tensor.set_shared_memory("region", pixels.nbytes)
    with pytest.raises(triton.InferenceServerException, match="shared memory") as caught:
        client.infer("birds", [tensor])
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def _field(number: int, kind: int, payload: bytes) -> bytes:
    return wire.varint(number << 3 | kind) + payload


@pytest.mark.parametrize("kind", [wire.VARINT, wire.FIXED64, wire.FIXED32], ids=["varint", "fixed64", "fixed32"])
@pytest.mark.parametrize("number", range(1, 8))
def test_a_field_of_another_wire_type_is_the_callers_mistake(server: Running, number: int, kind: int) -> None:
    payload = {wire.VARINT: b"\x01", wire.FIXED64: bytes(8), wire.FIXED32: bytes(4)}[kind]
    inner = _field(number, kind, payload)
    messages = [
        inner,
        wire.field(1, "birds") + inner,
        wire.field(1, "birds") + wire.message(5, inner),
        wire.field(1, "birds") + wire.message(5, wire.field(1, "images") + wire.message(5, inner)),
        wire.field(1, "birds") + wire.message(4, inner),
        wire.field(1, "birds") + wire.message(4, wire.field(1, "a") + wire.message(2, inner)),
        wire.field(1, "birds") + wire.message(6, inner),
        wire.field(1, "birds") + wire.message(6, wire.field(1, "logits") + wire.message(2, inner)),
    ]
    with grpc.insecure_channel(f"{server.host}:{server.grpc_port}") as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for data in messages:
            with pytest.raises(grpc.RpcError) as caught:
                infer(data)
            assert caught.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND), data
        for method in ("ModelReady", "ModelMetadata", "RepositoryIndex", "RepositoryModelLoad", "ModelStatistics"):
            call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}").future(inner)
            assert call.code() not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN), method


def test_typed_contents_hold_every_unsigned_value() -> None:
    to = Target(
        "m", {"x": TensorSpec("x", "UINT64", (-1, 2))}, {"p": TensorSpec("p", "FP32", (-1, 4))}, {}, True, 9, True
    )
    contents = wire.packed(5, [2**64 - 1, 1])
    entry = wire.field(1, "x") + wire.field(2, "UINT64") + wire.packed(3, [1, 2]) + wire.message(5, contents)
    request = read_request(memoryview(wire.message(5, entry)), to)
    assert request.feeds["x"].tolist() == [[2**64 - 1, 1]]


def test_a_full_queue_is_a_resource_that_is_exhausted(model_file: Path, tiny: ModuleType) -> None:
    """Not UNAVAILABLE, which says that nobody is there; what loads or drains says that."""
    model = Model.load(model_file, threads=1)
    repository = Repository()
    repository.add(model)
    inference = Inference(repository, Limits(), decoders=1)
    inference.limits = SimpleNamespace(max_wait=-1.0)  # type: ignore[assignment]
    with pytest.raises(QueueFull, match="queue is full") as caught:
        inference.admit("birds", None)
    inference.close()
    model.batcher.close()
    assert (caught.value.status, caught.value.grpc_code) == (503, grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])


def test_watching_the_health_of_an_unknown_service_says_so_and_stays(server: Running) -> None:
    with grpc.insecure_channel(f"{server.host}:{server.grpc_port}") as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
        known, unknown = watch(b"", timeout=60), watch(wire.field(1, "nobody"), timeout=60)
        assert next(known) == b"\x08\x01"  # SERVING
        assert next(unknown) == b"\x08\x03"  # SERVICE_UNKNOWN
        for call in (known, unknown):
            call.cancel()


def test_the_token_guards_all_but_health(model_file: Path) -> None:
    with (
        running(model_file, arguments=["--threads", "1", "--grpc-port", "0", "--token", "s3cret"]) as server,
        triton.InferenceServerClient(f"{server.host}:{server.grpc_port}") as client,
    ):
        assert client.is_server_live()
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret"}):
            with pytest.raises(triton.InferenceServerException) as caught:
                client.get_server_metadata(headers=headers)
            assert caught.value.status() == "StatusCode.UNAUTHENTICATED"
        assert client.get_server_metadata(headers={"authorization": "bearer s3cret"}).name == "calibrant"


def test_an_address_of_ipv6_serves_both(model_file: Path) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("this machine has no IPv6")
    with running(model_file, arguments=["--threads", "1", "--host", "::1", "--grpc-port", "0"]) as server:
        assert server.url.startswith("http://[::1]:")
        assert httpx.get(server.url + "/v2/health/live", timeout=60).json()["live"]
        with triton.InferenceServerClient(f"[::1]:{server.grpc_port}") as client:
            assert client.is_server_live()


@pytest.mark.parametrize("data", [b"\xff" * 40, b"\x0a\xff\x01x", b"\x2a\x03\x0a\x05a", b"\x07", b"\x09\x01"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    def read() -> None:
        for _, _, value in wire.fields(memoryview(data)):
            if isinstance(value, memoryview):
                list(wire.fields(value))

    with pytest.raises(Refusal):
        read()


def test_the_wire_format_by_hand() -> None:
    """Field 1 as text, field 2 as the number 300, field 3 packed: bytes as the specification shows them."""
    assert wire.field(1, "ab") == b"\x0a\x02ab"
    assert wire.number(2, 300) == b"\x10\xac\x02"
    assert wire.packed(3, [1, -1]) == b"\x1a\x0b\x01" + b"\xff" * 9 + b"\x01"
    assert wire.integers(wire.BYTES, memoryview(b"\x01" + b"\xff" * 9 + b"\x01")) == [1, -1]
