"""Tensors on the wire: the protocol's datatypes, their numpy and onnxruntime twins, and their little-endian bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMPY: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype("u1"), "UINT16": np.dtype("<u2"), "UINT32": np.dtype("<u4"), "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"), "INT16": np.dtype("<i2"), "INT32": np.dtype("<i4"), "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"), "FP32": np.dtype("<f4"), "FP64": np.dtype("<f8"),
    "BYTES": np.dtype(object),
}  # fmt: skip

_FROM_ORT = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8",
    "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16", "float": "FP32", "double": "FP64",
    "string": "BYTES",
}  # fmt: skip

_FROM_NUMPY = {v: k for k, v in NUMPY.items()}


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a model; -1 is a free dimension, and the batch axis is part of the shape."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False  # an input with a default in the graph (runtime knobs)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}

    @classmethod
    def from_ort(cls, node: Any, *, optional: bool = False) -> TensorSpec | None:
        """None for what the protocol has no name for (bfloat16, sequences, maps)."""
        datatype = _FROM_ORT.get(node.type.removeprefix("tensor(").removesuffix(")"))
        if datatype is None:
            return None
        shape = tuple(d if isinstance(d, int) and d >= 0 else -1 for d in node.shape)
        return cls(node.name, datatype, shape, optional)


def datatype_of(array: NDArray[Any]) -> str:
    return "BYTES" if array.dtype.kind in "OSU" else _FROM_NUMPY[array.dtype.newbyteorder("<")]


def to_bytes(array: NDArray[Any]) -> bytes | memoryview:
    """Row-major little-endian bytes; a BYTES element is its 4-byte length and its content."""
    if array.dtype.kind in "OSU":
        parts = []
        for element in array.reshape(-1):
            data = element if isinstance(element, bytes) else str(element).encode()
            parts += [struct.pack("<I", len(data)), data]
        return b"".join(parts)
    if array.flags.c_contiguous and array.dtype.byteorder != ">" and array.size:
        return array.data.cast("B")
    wanted = array.dtype.newbyteorder("<") if array.dtype.byteorder == ">" else array.dtype
    contiguous = np.ascontiguousarray(array, wanted)
    return contiguous.reshape(-1).view(np.uint8).data


def bytes_elements(data: memoryview, count: int) -> list[bytes]:
    """The elements of a BYTES tensor, or a ValueError that says how its length prefixes disagree with its size."""
    elements, at = [], 0
    for index in range(count):
        if at + 4 > len(data):
            raise ValueError(f"element {index} of {count} has no length prefix")
        (length,) = struct.unpack_from("<I", data, at)
        at += 4
        if at + length > len(data):
            raise ValueError(f"element {index} of {count} claims {length} bytes but {len(data) - at} follow")
        elements.append(bytes(data[at : at + length]))
        at += length
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the last of {count} elements")
    return elements
