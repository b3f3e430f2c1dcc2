"""The answer to a V2 request as JSON, with binary tensors behind it where they were asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from calibrant.serve.protocol.errors import BadInput
from calibrant.serve.protocol.request import InferRequest
from calibrant.serve.protocol.tensors import datatype_of, to_bytes


@dataclass(frozen=True, slots=True)
class Encoded:
    """An answer: the parts of its body, and the length of the JSON where binary tensors follow it."""

    parts: list[bytes | memoryview]
    header_length: int | None


def encode(
    model: str,
    version: str | None,
    request: InferRequest,
    tensors: Mapping[str, NDArray[Any]],
    class_names: Sequence[str] | None,
    parameters: Mapping[str, Any] | None = None,
) -> Encoded:
    """The answer, tensors in the order of `request.outputs`. NaN and infinity cannot be written in JSON: refused."""
    plan = request.plan
    if plan is not None and plan.answers and not parameters:
        arrays = [tensors[w.name] for w in request.outputs]
        written = plan.answers.get(tuple([array.shape for array in arrays]))
        if written is not None:
            before, behind = written
            header = before + _id(request.id) + behind
            return Encoded([header, *map(to_bytes, arrays)], len(header))
    entries: list[dict[str, Any]] = []
    tail: list[bytes | memoryview] = []
    for wanted in request.outputs:
        array = tensors[wanted.name]
        if wanted.classes:
            array = classification(array, wanted.classes, class_names)
        entry: dict[str, Any] = {"name": wanted.name, "datatype": datatype_of(array), "shape": list(array.shape)}
        if wanted.binary:
            data = to_bytes(array)
            entry["parameters"] = {"binary_data_size": len(data)}
            tail.append(data)
        else:
            entry["data"] = _json_data(array, wanted.name)
        entries.append(entry)
    named = {"model_name": model} if version is None else {"model_name": model, "model_version": version}
    before = orjson.dumps(named)[:-1]
    rest = {"parameters": parameters, "outputs": entries} if parameters else {"outputs": entries}
    behind = b"," + orjson.dumps(rest, option=orjson.OPT_SERIALIZE_NUMPY)[1:]
    header = before + _id(request.id) + behind
    plain = len(tail) == len(request.outputs) and not any(w.classes for w in request.outputs)
    if plan is not None and not parameters and plain and len(plan.answers) < 16:
        plan.answers[tuple(tensors[w.name].shape for w in request.outputs)] = (before, behind)
    return Encoded([header, *tail], len(header) if tail else None)


def _id(of: str | None) -> bytes:
    return b"" if of is None else b',"id":' + orjson.dumps(of)


def _json_data(array: NDArray[Any], name: str) -> Any:
    if array.dtype.kind in "OSU":
        return [v.decode(errors="replace") if isinstance(v, bytes) else str(v) for v in array.reshape(-1)]
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise BadInput(
                f'output "{name}" holds NaN or infinity for this input, which JSON cannot carry; ask for binary_data'
            )
        if array.dtype.itemsize == 2:
            array = array.astype(np.float32)
    return np.ascontiguousarray(array).reshape(-1)


def classification(array: NDArray[Any], k: int, class_names: Sequence[str] | None) -> NDArray[Any]:
    """BYTES [rows, min(k, C)] of "value:index:label", the largest value first."""
    if np.isnan(array).any():
        raise BadInput("the model's answer to this input is not a number, so its classes have no order")
    k = min(k, array.shape[1])
    order = np.argsort(-array, axis=1, kind="stable")[:, :k]
    named = class_names is not None and len(class_names) == array.shape[1]
    texts = np.empty(order.shape, object)
    for row, indices in enumerate(order):
        for column, index in enumerate(indices):
            text = f"{array[row, index]:f}:{index}"
            texts[row, column] = f"{text}:{class_names[index]}" if named and class_names is not None else text
    return texts
