"""Read by protobuf, and beside the descriptors of NVIDIA's files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from calibrant.serve.grpc import wire
from calibrant.serve.processes.background import Running

grpc = pytest.importorskip("grpc")
triton = pytest.importorskip("tritonclient.grpc")
pytest.importorskip("hpack")
SERVICE = "inference.GRPCInferenceService"


@pytest.fixture
def channel(grpc_server: Running) -> Iterator[Any]:
    with grpc.insecure_channel(f"{grpc_server.host}:{grpc_server.grpc_port}") as opened:
        yield opened


@pytest.fixture
def pool(channel: Any) -> Any:
    """What protobuf makes of the files that the server tells."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    found = descriptor_pool.DescriptorPool()
    for name in ("grpc_service.proto", "grpc/health/v1/health.proto", "grpc/reflection/v1/reflection.proto"):
        (answer,) = _ask(channel, wire.field(3, name))
        (data,) = [bytes(v) for n, _, v in wire.fields(answer[4]) if n == 1]
        found.Add(descriptor_pb2.FileDescriptorProto.FromString(data))
    return found


def _ask(channel: Any, *questions: bytes, version: str = "v1") -> list[dict[int, Any]]:
    call = channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
    return [{n: value for n, _, value in wire.fields(memoryview(a))} for a in call(iter(questions), timeout=60)]


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_services_files_and_symbols_are_told(channel: Any, version: str) -> None:
    questions = [
        wire.message(7, b""), wire.field(4, SERVICE), wire.field(4, "grpc.health.v1.Health.Check"),
        wire.field(4, "nobody.Knows"), wire.field(3, "no.proto"), wire.message(5, b""), b"",
    ]  # fmt: skip
    listed, service, method, *wrong = _ask(channel, *questions, version=version)
    names = [wire.text(next(wire.fields(v))[2]) for _, _, v in wire.fields(listed[6])]
    assert names == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        SERVICE,
    ]
    assert b"grpc_service.proto" in bytes(service[4])
    assert b"health.proto" in bytes(method[4])
    assert bytes(service[2]) == questions[1]
    codes = [next(value for n, _, value in wire.fields(answer[7]) if n == 1) for answer in wrong]
    assert codes == [5, 5, 12, 3]


def test_a_tool_that_knows_only_what_it_was_told_can_ask(channel: Any, pool: Any) -> None:
    from google.protobuf import json_format, message_factory
    from google.protobuf.unknown_fields import UnknownFieldSet

    service = pool.FindServiceByName(SERVICE)
    for name, fields in (("ModelMetadata", {"name": "birds"}), ("ModelConfig", {"name": "birds"}),
                         ("ModelStatistics", {}), ("RepositoryIndex", {})):  # fmt: skip
        method = service.methods_by_name[name]
        asked = json_format.ParseDict(fields, message_factory.GetMessageClass(method.input_type)())
        reply = channel.unary_unary(f"/{SERVICE}/{name}")(asked.SerializeToString(), timeout=60)
        answer = message_factory.GetMessageClass(method.output_type).FromString(reply)
        assert "birds" in json_format.MessageToJson(answer)
        for part in (answer, *([answer.config] if name == "ModelConfig" else [])):
            assert not len(UnknownFieldSet(part))  # it knows all that it was sent
    assert pool.FindServiceByName("grpc.reflection.v1.ServerReflection").methods[0].client_streaming
    assert (
        pool.FindEnumTypeByName("grpc.health.v1.HealthCheckResponse.ServingStatus").values_by_name["SERVING"].number
        == 1
    )


def test_an_answer_that_cannot_be_made_ends_the_stream(channel: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        _ask(channel, b"\xff\xff")
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
