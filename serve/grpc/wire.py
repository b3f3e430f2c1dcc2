"""Just enough of the protocol-buffer wire format for the inference service, in both directions.

Written by hand so that the server needs neither generated code nor the protobuf package: two generated copies of the
service (tritonclient's and kserve's) refuse to live in one process, and a tensor here stays a view of the message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.onnx_wire import encode_varint as varint
from calibrant.serve.protocol.errors import BadInput, TooLarge

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MOST_FIELDS = 2_000  # of one message; each costs about a microsecond of everybody's time
_STEP = 1 << 18  # bytes of packed numbers that are read at once


def field(number: int, data: bytes | memoryview | str) -> bytes:
    """A length-delimited field; an empty one is the default and left out."""
    if isinstance(data, str):
        data = data.encode()
    return opening(number, len(data)) + bytes(data) if len(data) else b""


def message(number: int, data: bytes) -> bytes:
    """An embedded message, which may be empty and still be there."""
    return opening(number, len(data)) + data


def opening(number: int, size: int) -> bytes:
    """What stands before `size` bytes of a field."""
    return varint(number << 3 | BYTES) + varint(size)


def number(field_number: int, value: int | bool) -> bytes:
    return varint(field_number << 3 | VARINT) + varint(int(value)) if value else b""


def packed(field_number: int, values: Sequence[int]) -> bytes:
    return field(field_number, b"".join(map(varint, values)))


def fields(data: memoryview, *, most: int = MOST_FIELDS) -> Iterator[tuple[int, int, Any]]:
    """(number, wire type, value) of each field; a length-delimited value is a view."""
    at, end = 0, len(data)
    while at < end:
        most -= 1
        if most < 0:
            raise TooLarge("the message has too many fields; send tensors as raw_input_contents")
        key, at = _read_varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _read_varint(data, at)
            yield key >> 3, kind, value
        elif kind == BYTES:
            length, at = _read_varint(data, at)
            if length > end - at:
                raise BadInput("the message is cut off")
            yield key >> 3, kind, data[at : at + length]
            at += length
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
            if size > end - at:
                raise BadInput("the message is cut off")
            yield key >> 3, kind, data[at : at + size]
            at += size
        else:
            raise BadInput(f"the message holds a field of the unknown wire type {kind}")


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise BadInput("the message is cut off, or not a protocol buffer")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
        shift += 7


def signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def view(value: Any) -> memoryview:
    """A length-delimited field's bytes."""
    if not isinstance(value, memoryview):
        raise BadInput("a field of text or bytes holds a number")
    return value


def text(value: Any) -> str:
    try:
        return bytes(view(value)).decode()
    except UnicodeDecodeError:
        raise BadInput("a text field is not UTF-8") from None


def integers(kind: int, value: Any, *, unsigned: bool = False) -> list[int]:
    """A repeated integer field, packed or single."""
    if kind == VARINT:
        return [value if unsigned else signed(value)]
    if kind != BYTES:
        raise BadInput("a field of whole numbers holds something else")
    found, at = [], 0
    while at < len(value):
        one, at = _read_varint(value, at)
        found.append(one if unsigned else signed(one))
    return found


def integer_array(kind: int, value: Any, *, most: int, unsigned: bool = False) -> NDArray[Any]:
    """`integers` for many: as an array, of at most so many."""
    if kind != BYTES:
        return np.array(integers(kind, value, unsigned=unsigned), np.uint64 if unsigned else np.int64)
    octets = np.frombuffer(value, np.uint8)
    ends = octets < 128
    count = int(np.count_nonzero(ends))
    if count > most or (len(octets) and not ends[-1]):
        raise BadInput("there are more numbers than the shape has" if count > most else "the message is cut off")
    if count == len(octets):  # all below 128
        return octets
    found = np.empty(count, np.uint64)
    at = done = 0
    while at < len(octets):
        stop = min(len(octets), at + _STEP)
        stop = at + int(np.flatnonzero(ends[at:stop])[-1]) + 1 if ends[at:stop].any() else at
        if stop == at:
            raise BadInput("a number has more bytes than numbers have")
        numbers = _decoded(octets[at:stop], ends[at:stop])
        found[done : done + len(numbers)] = numbers
        at, done = stop, done + len(numbers)
    return found if unsigned else found.view(np.int64)


def _decoded(octets: NDArray[Any], ends: NDArray[Any]) -> NDArray[Any]:
    """Numbers of seven bits a byte, the lowest first."""
    last = np.flatnonzero(ends)
    first = np.concatenate([[0], last[:-1] + 1])
    sizes = last - first + 1
    if sizes.max() > 10:
        raise BadInput("a number has more bytes than numbers have")
    place = np.arange(len(octets)) - np.repeat(first, sizes)
    return np.add.reduceat((octets & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64), first)


def floats(kind: int, value: Any, dtype: str) -> NDArray[Any]:
    """A repeated float or double field, packed or single."""
    single = FIXED32 if np.dtype(dtype).itemsize == 4 else FIXED64
    if kind not in (BYTES, single) or len(value) % np.dtype(dtype).itemsize:
        raise BadInput("a field of floating-point numbers holds something else")
    return np.frombuffer(value, dtype)


_KINDS = {1: VARINT, 2: VARINT, 3: BYTES, 4: FIXED64, 5: VARINT}


def parameter(data: memoryview) -> bool | int | str | float | None:
    """InferParameter: bool 1, int64 2, string 3, double 4, uint64 5."""
    found: bool | int | str | float | None = None
    for n, kind, value in fields(data):
        if n in _KINDS and kind != _KINDS[n]:
            raise BadInput("a parameter is not of the type that its field says")
        if n == 1:
            found = bool(value)
        elif n in (2, 5):
            found = signed(value) if n == 2 else value
        elif n == 3:
            found = text(value)
        elif n == 4:
            found = struct.unpack("<d", value)[0]
    return found


def map_entry(data: memoryview) -> tuple[str, memoryview]:
    key, inner = "", memoryview(b"")
    for n, _, value in fields(data):
        if n == 1:
            key = text(value)
        elif n == 2:
            inner = view(value)
    return key, inner


def write_map(number_: int, values: Mapping[str, bytes]) -> bytes:
    return b"".join(message(number_, field(1, k) + message(2, v)) for k, v in values.items())
