from __future__ import annotations

from typing import Any

import pytest

from calibrant.serve.grpc.reflection.descriptors import file_descriptor
from calibrant.serve.grpc.reflection.schema import INFERENCE


def test_messages_are_those_of_the_published_files() -> None:
    """Every field that is told has the number, the type and the label that NVIDIA's client has for it."""
    service_pb2 = pytest.importorskip("tritonclient.grpc.service_pb2")
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorProto.FromString(file_descriptor(INFERENCE)))
    seen = 0

    def compare(ours: Any, theirs: Any) -> None:
        nonlocal seen
        for own in ours.fields:
            other = theirs.fields_by_name[own.name]
            assert (own.number, own.type) == (other.number, other.type), own.full_name
            assert own.is_repeated == other.is_repeated, own.full_name
            assert own.json_name == other.json_name
            assert (own.containing_oneof is None) == (other.containing_oneof is None)
            seen += 1
            if own.enum_type is not None:
                values = {v.name: v.number for v in other.enum_type.values}
                assert all(values[v.name] == v.number for v in own.enum_type.values)
            if own.message_type is not None:
                assert own.message_type.GetOptions().map_entry == other.message_type.GetOptions().map_entry
                compare(own.message_type, other.message_type)

    ours = pool.FindServiceByName("inference.GRPCInferenceService")
    theirs = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    for method in ours.methods:
        other = theirs.methods_by_name[method.name]
        assert method.input_type.full_name == other.input_type.full_name
        assert (method.client_streaming, method.server_streaming) == (other.client_streaming, other.server_streaming)
        compare(method.input_type, other.input_type)
        compare(method.output_type, other.output_type)
    assert len(ours.methods) == 12
    assert seen > 150
