from __future__ import annotations

from calibrant.serve.grpc.reflection.descriptors import file_descriptor, symbols
from calibrant.serve.grpc.reflection.schema import Schema

SMALL = Schema("a.proto", "a", "M: n int64* 1,\n    e .E 2\n", {"S": "Go M M*"}, {"M.E": ("NO", "YES")})


def test_a_file_by_hand() -> None:
    """Field numbers of descriptor.proto: name 1, package 2, messages 4, services 6, syntax 12."""
    n = b"\x0a\x01n" + b"\x18\x01" + b"\x20\x03" + b"\x28\x03" + b"\x52\x01n"
    n = b"\x12" + bytes([len(n)]) + n
    e = b"\x0a\x01e" + b"\x18\x02" + b"\x20\x01" + b"\x28\x0e" + b"\x32\x06.a.M.E" + b"\x52\x01e"
    e = b"\x12" + bytes([len(e)]) + e
    enum = b"\x0a\x01E" + b"\x12\x04\x0a\x02NO" + b"\x12\x07\x0a\x03YES\x10\x01"
    message = b"\x0a\x01M" + n + e + b"\x22" + bytes([len(enum)]) + enum
    method = b"\x0a\x02Go" + b"\x12\x04.a.M" + b"\x1a\x04.a.M" + b"\x30\x01"
    service = b"\x0a\x01S" + b"\x12" + bytes([len(method)]) + method
    expected = b"\x0a\x07a.proto" + b"\x12\x01a" + b"\x22" + bytes([len(message)]) + message
    expected += b"\x32" + bytes([len(service)]) + service + b"\x62\x06proto3"
    assert file_descriptor(SMALL) == expected


def test_symbols_are_messages_enumerations_services_and_methods() -> None:
    assert sorted(symbols(SMALL)) == ["a.M", "a.M.E", "a.S", "a.S.Go"]
