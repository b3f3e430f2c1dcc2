"""ServerReflectionInfo: an answer to each question, and mistakes are answers too."""

from __future__ import annotations

from calibrant.serve.grpc import wire
from calibrant.serve.grpc.reflection.descriptors import file_descriptor, symbols
from calibrant.serve.grpc.reflection.schema import SCHEMAS

SERVICES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
_NOT_FOUND, _UNIMPLEMENTED, _INVALID = 5, 12, 3


class Reflection:
    """Knows the files of all services; made when somebody asks for the first time."""

    def __init__(self) -> None:
        self._files = {schema.file: file_descriptor(schema) for schema in SCHEMAS}
        self._symbols = {symbol: schema.file for schema in SCHEMAS for symbol in symbols(schema)}
        self._services = sorted(f"{schema.package}.{name}" for schema in SCHEMAS for name in schema.services)

    def answer(self, data: memoryview) -> bytes:
        """ServerReflectionResponse."""
        host, found = b"", wire.message(7, _error(_INVALID, "the question is empty"))
        for n, _, value in wire.fields(data):
            if n == 1:
                host = bytes(wire.view(value))
            else:
                found = self._found(n, value)
        return wire.field(1, host) + wire.message(2, bytes(data)) + found

    def _found(self, n: int, value: object) -> bytes:
        if n == 7:
            return wire.message(6, b"".join(wire.message(1, wire.field(1, name)) for name in self._services))
        if n not in (3, 4):
            return wire.message(7, _error(_UNIMPLEMENTED, "there are no extensions"))
        asked = wire.text(value)
        data = self._files.get(asked if n == 3 else self._symbols.get(asked, ""))
        if data is None:
            return wire.message(7, _error(_NOT_FOUND, f'no {"file" if n == 3 else "symbol"} "{asked[:100]}"'))
        return wire.message(4, wire.message(1, data))


def _error(code: int, text: str) -> bytes:
    return wire.number(1, code) + wire.field(2, text)
