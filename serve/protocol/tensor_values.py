"""The values of an input tensor, from bytes or from JSON, where each of them survives the way to the model's type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.serve.protocol.errors import BadInput, shown
from calibrant.serve.protocol.tensors import NUMPY, TensorSpec, bytes_elements


def from_bytes(data: memoryview, spec: TensorSpec, shape: tuple[int, ...]) -> NDArray[Any]:
    """A tensor over the bytes themselves, not a copy, once their number and values are right."""
    count = math.prod(shape)
    if spec.datatype == "BYTES":
        try:
            elements = bytes_elements(data, count)
        except ValueError as error:
            raise BadInput(f'input "{spec.name}": {error}') from None
        return _text_array(elements, spec, shape)
    dtype = NUMPY[spec.datatype]
    if len(data) != count * dtype.itemsize:
        raise BadInput(
            f'input "{spec.name}" of shape {shown(list(shape))} {spec.datatype} needs {count * dtype.itemsize} bytes, '
            f"got {len(data)}"
        )
    array: NDArray[Any] = np.ndarray(shape, np.uint8 if spec.datatype == "BOOL" else dtype, data)
    if spec.datatype == "BOOL":
        if array.max() > 1:
            raise BadInput(f'input "{spec.name}" is BOOL and may hold the bytes 0 and 1 only')
        array = array.view(np.bool_)
    if not array.flags.aligned:  # the tensor starts where the JSON ended; onnxruntime reads whole words
        array = array.copy()
    return _finite(array, spec)


def from_json(data: Any, spec: TensorSpec, shape: tuple[int, ...]) -> NDArray[Any]:
    """A tensor from `data`, flat or nested to the shape."""
    if not isinstance(data, list):
        raise BadInput(f'input "{spec.name}" has no `data` list and no binary_data_size')
    if spec.datatype == "BYTES":
        flat = _flatten(data, len(shape))
        if not all(isinstance(v, str) for v in flat):
            raise BadInput(f'input "{spec.name}" is BYTES: in JSON its elements are strings')
        array: NDArray[Any] = np.array(flat, object)
    else:
        try:
            array = np.array(data)
            if array.dtype.kind == "f" and NUMPY[spec.datatype].kind in "iu":
                array = _exact(data, array, spec)
        except (ValueError, OverflowError, RecursionError):
            raise BadInput(f'`data` of input "{spec.name}" is ragged: its rows differ in length') from None
    return from_values(array, spec, shape)


def _exact(data: list[Any], rounded: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    """The whole numbers that numpy made floating-point, since some are above 2^63 and others are not."""
    values = np.array(data, object)
    if not all(type(v) is int for v in values.flat):
        return rounded
    _in_range(values.min(), values.max(), spec)
    return values.astype(NUMPY[spec.datatype])


def _in_range(low: int, high: int, spec: TensorSpec) -> None:
    limits = np.iinfo(NUMPY[spec.datatype])
    if low < limits.min or high > limits.max:
        raise BadInput(
            f'input "{spec.name}" ({spec.datatype}) must lie in {limits.min}..{limits.max}, '
            f"got {low if low < limits.min else high}"
        )


def from_values(array: NDArray[Any], spec: TensorSpec, shape: tuple[int, ...]) -> NDArray[Any]:
    """A tensor from values of whatever type, where each of them survives the change to the model's."""
    count = math.prod(shape)
    if array.shape != shape and not (array.ndim == 1 and array.size == count):
        raise BadInput(
            f'`data` of input "{spec.name}" has the shape {shown(list(array.shape))}; give {shown(list(shape))}, '
            f"or a flat list of {count}"
        )
    return cast(array, spec).reshape(shape)


def cast(array: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    """The array in the model's type where every value survives it."""
    dtype = NUMPY[spec.datatype]
    if spec.datatype == "BYTES":
        return array
    allowed = {"b": "b", "f": "iuf"}.get(dtype.kind, "iu")
    if array.dtype.kind not in allowed:
        what = {"b": "true or false", "f": "numbers"}.get(dtype.kind, "whole numbers")
        raise BadInput(f'`data` of input "{spec.name}" ({spec.datatype}) must hold {what} only')
    if dtype.kind in "iu":
        _in_range(int(array.min()), int(array.max()), spec)
        return array.astype(dtype)
    with np.errstate(over="ignore"):
        return _finite(array.astype(dtype), spec)


def _finite(array: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    if array.dtype.kind == "f":
        finite = np.isfinite(array)  # faster than a sum, which numpy adds up pair by pair
        if not np.logical_and.reduce(finite, axis=None):
            index = int(finite.argmin())
            raise BadInput(
                f'input "{spec.name}" must be finite; element {index} is {array.flat[index]} in {spec.datatype}'
            )
    return array


def _text_array(elements: Sequence[bytes], spec: TensorSpec, shape: tuple[int, ...]) -> NDArray[Any]:
    array = np.empty(len(elements), object)
    try:
        array[:] = [element.decode() for element in elements]
    except UnicodeDecodeError:
        raise BadInput(f'input "{spec.name}" must hold UTF-8 text') from None
    return array.reshape(shape)


def _flatten(data: list[Any], depth: int) -> list[Any]:
    for _ in range(depth - 1):
        if not data or not isinstance(data[0], list):
            break
        data = [v for row in data for v in (row if isinstance(row, list) else [row])]
    return data
