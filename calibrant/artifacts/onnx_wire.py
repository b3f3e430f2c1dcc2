"""The few pieces of the protobuf wire format that reading and editing an ONNX file takes.

With these, a server or an editor needs neither the onnx package nor a copy of the whole file in memory. A message is a
run of fields; a field is a varint tag (number * 8 + wire type) and a value: a varint (0), 8 bytes (1), a length and
that many bytes (2), or 4 bytes (5). Order is free and unknown fields are kept as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# TensorProto.DataType for the arrays that we read and write.
DTYPES: dict[int, np.dtype[np.generic]] = {
    1: np.dtype(np.float32), 2: np.dtype(np.uint8), 3: np.dtype(np.int8), 4: np.dtype(np.uint16),
    5: np.dtype(np.int16), 6: np.dtype(np.int32), 7: np.dtype(np.int64), 9: np.dtype(np.bool_),
    10: np.dtype(np.float16), 11: np.dtype(np.float64), 12: np.dtype(np.uint32), 13: np.dtype(np.uint64),
}  # fmt: skip
DTYPE_CODES = {dtype: code for code, dtype in DTYPES.items()}
DTYPE_NAMES = {code: dtype.name for code, dtype in DTYPES.items()} | {8: "string", 16: "bfloat16"}


class Damaged(ValueError):
    """The bytes are not a protobuf message, or end too early."""


class Field(NamedTuple):
    """One field of a message: number, wire type, where it starts, and its value as an integer or a byte range."""

    number: int
    wire: int
    begin: int  # of the tag
    start: int  # of the payload (wire 2: after the length)
    end: int
    value: int  # the varint of wire 0, else 0


def varint(buffer: bytes | memoryview, position: int, end: int) -> tuple[int, int]:
    """The integer at `position` and the position after it."""
    result = shift = 0
    while position < end and shift < 70:
        byte = buffer[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
    raise Damaged("a number is cut off")


def fields(buffer: bytes | memoryview, start: int, end: int) -> Iterator[Field]:
    """The fields of the message in buffer[start:end]."""
    position = start
    while position < end:
        begin = position
        tag, position = varint(buffer, position, end)
        number, wire = tag >> 3, tag & 7
        value = 0
        payload = position
        if wire == 0:
            value, position = varint(buffer, position, end)
        elif wire == 1:
            position += 8
        elif wire == 5:
            position += 4
        elif wire == 2:
            length, payload = varint(buffer, position, end)
            position = payload + length
        else:
            raise Damaged(f"wire type {wire} does not exist")
        if number == 0 or position > end:
            raise Damaged("a field reaches beyond the end")
        yield Field(number, wire, begin, payload, position, value)


def encode_varint(value: int) -> bytes:
    if value < 0:  # protobuf's int64: two's complement in ten bytes
        value += 1 << 64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(number: int, value: int) -> bytes:
    return encode_varint(number << 3) + encode_varint(value)


def header(number: int, length: int) -> bytes:
    """Tag and length of a field whose payload follows."""
    return encode_varint(number << 3 | 2) + encode_varint(length)


def blob(number: int, payload: bytes | str) -> bytes:
    data = payload.encode() if isinstance(payload, str) else payload
    return header(number, len(data)) + data


Attribute = int | float | str | Sequence[int]


@dataclass(frozen=True)
class Node:
    """An operator call of the default ONNX domain."""

    op: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    name: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    def encode(self) -> bytes:
        parts = [blob(1, i) for i in self.inputs] + [blob(2, o) for o in self.outputs]
        parts += [blob(3, self.name), blob(4, self.op)]
        parts += [blob(5, _attribute(name, value)) for name, value in self.attributes.items()]
        return b"".join(parts)


def _attribute(name: str, value: Attribute) -> bytes:
    head = blob(1, name)
    if isinstance(value, float):
        return head + encode_varint(2 << 3 | 5) + struct.pack("<f", value) + integer(20, 1)
    if isinstance(value, int):
        return head + integer(3, value) + integer(20, 2)
    if isinstance(value, str):
        return head + blob(4, value) + integer(20, 3)
    return head + b"".join(integer(8, v) for v in value) + integer(20, 7)


@dataclass(frozen=True)
class Value:
    """Name, type and shape of an input or output; a dimension is a number, or a name where it is free."""

    name: str
    dtype: int  # TensorProto.DataType
    dims: tuple[int | str, ...]

    def encode(self) -> bytes:
        dims = b"".join(blob(1, integer(1, d) if isinstance(d, int) else blob(2, d)) for d in self.dims)
        tensor = integer(1, self.dtype) + blob(2, dims)
        return blob(1, self.name) + blob(2, blob(1, tensor))


def encode_tensor(name: str, array: NDArray[np.generic]) -> bytes:
    """A TensorProto with raw data."""
    array = np.ascontiguousarray(array)
    dims = b"".join(integer(1, d) for d in np.shape(array))
    raw = array.astype(array.dtype.newbyteorder("<"), copy=False)
    kind = integer(2, DTYPE_CODES[array.dtype.newbyteorder("=")])
    # joined once: a classifier of a thousand classes is megabytes, and editing is done in little memory
    return b"".join([dims, kind, blob(8, name), header(9, raw.nbytes), raw.reshape(-1).view(np.uint8).data])


def decode_value(buffer: bytes | memoryview, start: int, end: int) -> Value:
    name, dtype, dims = "", 0, list[int | str]()
    for f in fields(buffer, start, end):
        if f.number == 1:
            name = text(buffer, f)
        elif f.number == 2:
            for kind in fields(buffer, f.start, f.end):
                if kind.number != 1:
                    continue
                for part in fields(buffer, kind.start, kind.end):
                    if part.number == 1:
                        dtype = part.value
                    elif part.number == 2:
                        dims = [_dimension(buffer, d) for d in fields(buffer, part.start, part.end) if d.number == 1]
    return Value(name, dtype, tuple(dims))


def _dimension(buffer: bytes | memoryview, dim: Field) -> int | str:
    for f in fields(buffer, dim.start, dim.end):
        if f.number == 1:
            return f.value
        if f.number == 2:
            return text(buffer, f)
    return ""


def text(buffer: bytes | memoryview, f: Field) -> str:
    return bytes(buffer[f.start : f.end]).decode("utf-8", "replace")


def pairs(buffer: bytes | memoryview, f: Field) -> tuple[str, str]:
    """Key and value of a StringStringEntryProto."""
    key = value = ""
    for part in fields(buffer, f.start, f.end):
        if part.number == 1:
            key = text(buffer, part)
        elif part.number == 2:
            value = text(buffer, part)
    return key, value
