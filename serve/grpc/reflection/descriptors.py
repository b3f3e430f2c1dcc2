"""Schemas as protocol buffers' own descriptors (field numbers of google/protobuf/descriptor.proto)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from calibrant.serve.grpc.reflection.schema import Schema
from calibrant.serve.grpc.wire import field, message, number

_TYPES = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
}
_MESSAGE, _ENUM = 11, 14
_OPTIONAL, _REPEATED = 1, 3
_FIELD = re.compile(r"(\w+) (\.?\w+)([*?]|\{\})? (\d+)")


def file_descriptor(schema: Schema) -> bytes:
    """FileDescriptorProto."""
    writer = _Writer(schema)
    out = field(1, schema.file) + field(2, schema.package)
    out += b"".join(message(4, writer.message(name)) for name in writer.messages if "." not in name)
    out += b"".join(message(5, writer.enum(name)) for name in schema.enums if "." not in name)
    out += b"".join(message(6, writer.service(name)) for name in schema.services)
    return out + field(12, "proto3")


def symbols(schema: Schema) -> Iterator[str]:
    """Full names of what the file has."""
    services = [f"{name}.{line.split()[0]}" for name, text in schema.services.items() for line in _lines(text)]
    for name in (*_Writer(schema).messages, *schema.enums, *schema.services, *services):
        yield f"{schema.package}.{name}"


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


class _Writer:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.messages: dict[str, str] = {}  # names and their fields
        for line in _lines(re.sub(r",\n\s+", ", ", schema.messages)):
            name, _, fields = line.partition(":")
            self.messages[name] = fields

    def message(self, name: str) -> bytes:
        """DescriptorProto, with what is nested in it; a map is a repeated message of its own."""
        fields, maps, chosen = b"", b"", False
        for own, kind, mark, tag in _FIELD.findall(self.messages[name]):
            oneof = mark == "?"
            chosen = chosen or oneof
            if mark == "{}":
                entry = "".join(part.capitalize() for part in own.split("_")) + "Entry"
                inner = _field("key", 1, _TYPES["string"], "") + self._typed("value", 2, kind, name, "")
                maps += message(3, field(1, entry) + inner + message(7, number(7, True)))
                fields += _field(own, int(tag), _MESSAGE, f".{self._schema.package}.{name}.{entry}", "*")
            else:
                fields += self._typed(own, int(tag), kind, name, mark)
        nested = [other for other in self.messages if other.rpartition(".")[0] == name]
        out = field(1, name.rpartition(".")[2]) + fields + b"".join(message(3, self.message(n)) for n in nested) + maps
        enums = [other for other in self._schema.enums if other.rpartition(".")[0] == name]
        out += b"".join(message(4, self.enum(other)) for other in enums)
        return out + (message(8, field(1, self._schema.choice)) if chosen else b"")

    def _typed(self, own: str, tag: int, kind: str, name: str, mark: str) -> bytes:
        """A field; a type that begins with a dot is nested in the message."""
        if kind in _TYPES:
            return _field(own, tag, _TYPES[kind], "", mark)
        full = name + kind if kind.startswith(".") else kind
        return _field(
            own, tag, _ENUM if full in self._schema.enums else _MESSAGE, f".{self._schema.package}.{full}", mark
        )

    def enum(self, name: str) -> bytes:
        values = [field(1, value) + number(2, n) for n, value in enumerate(self._schema.enums[name])]
        return field(1, name.rpartition(".")[2]) + b"".join(message(2, value) for value in values)

    def service(self, name: str) -> bytes:
        out = field(1, name)
        for line in _lines(self._schema.services[name]):
            method, request, answer = line.split()
            kinds = [f".{self._schema.package}.{kind.rstrip('*')}" for kind in (request, answer)]
            streams = number(5, request.endswith("*")) + number(6, answer.endswith("*"))
            out += message(2, field(1, method) + field(2, kinds[0]) + field(3, kinds[1]) + streams)
        return out


def _field(name: str, tag: int, kind: int, kind_name: str, mark: str = "") -> bytes:
    """FieldDescriptorProto, as one of the fields of a message."""
    out = field(1, name) + number(3, tag) + number(4, _REPEATED if mark == "*" else _OPTIONAL) + number(5, kind)
    first, *rest = name.split("_")
    out += field(6, kind_name) + (b"\x48\x00" if mark == "?" else b"")  # the first choice, whose index is 0
    return message(2, out + field(10, first + "".join(part.capitalize() for part in rest)))
