"""The messages of the V2 protocol's gRPC service, to and from what the rest of the server speaks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.serve.grpc import wire
from calibrant.serve.models.model import Model
from calibrant.serve.protocol import tensor_values
from calibrant.serve.protocol.answer import classification
from calibrant.serve.protocol.checks import assemble, check_input, check_output, implied, refuse_shared_memory
from calibrant.serve.protocol.errors import BadInput
from calibrant.serve.protocol.request import InferRequest, Target, Wanted
from calibrant.serve.protocol.tensors import NUMPY, TensorSpec, datatype_of, to_bytes

DATA_TYPES = ["INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16",
               "FP32", "FP64", "STRING"]  # fmt: skip
# Field of InferTensorContents that carries a datatype; FP16 has none.
_CONTENTS = {"BOOL": 1, "INT8": 2, "INT16": 2, "INT32": 2, "INT64": 3, "UINT8": 4, "UINT16": 4, "UINT32": 4,
             "UINT64": 5, "FP32": 6, "FP64": 7, "BYTES": 8}  # fmt: skip


@dataclass(slots=True)
class Parts:
    """A ModelInferRequest, its fields apart and unread."""

    name: str = ""
    version: str | None = None
    id: str = ""
    parameters: list[Any] = field(default_factory=list)
    inputs: list[memoryview] = field(default_factory=list)
    outputs: list[memoryview] = field(default_factory=list)
    raw: list[memoryview] = field(default_factory=list)
    raw_last: bool = False  # nothing follows the last of them


def split(data: memoryview) -> Parts:
    parts, n = Parts(), 0
    for n, _, value in wire.fields(data):
        if n == 1:
            parts.name = wire.text(value)
        elif n == 2:
            parts.version = wire.text(value) or None
        elif n == 3:
            parts.id = wire.text(value)
        elif n == 4:
            parts.parameters.append(value)
        elif n == 5:
            parts.inputs.append(wire.view(value))
        elif n == 6:
            parts.outputs.append(wire.view(value))
        elif n == 7:
            parts.raw.append(wire.view(value))
    parts.raw_last = n == 7
    return parts


def read_request(data: memoryview, target: Target) -> InferRequest:
    """ModelInferRequest, through the same checks as an HTTP request."""
    return request_of(split(data), target)


def request_of(parts: Parts, target: Target) -> InferRequest:
    raw = parts.raw
    parameters: dict[str, Any] = {}
    for value in parts.parameters:
        _read_parameter(value, parameters)
    if raw and len(raw) != len(parts.inputs):
        for entry in parts.inputs:  # which have no bytes of their own
            refuse_shared_memory(_parameters(entry, 4), "an input")
        raise BadInput(f"{len(raw)} raw_input_contents for {len(parts.inputs)} inputs")
    feeds: dict[str, NDArray[Any]] = {}
    for index, entry in enumerate(parts.inputs):
        name, array = _read_input(entry, raw[index] if raw else None, target, feeds)
        feeds[name] = array
    wanted: list[Wanted] = []
    for entry in parts.outputs:
        wanted.append(_read_output(entry, target, wanted))
    request = assemble(
        feeds, wanted or [Wanted(name, True) for name in target.outputs], parameters, parts.id or None, target
    )
    if request.knobs is not None and not wanted:
        request.outputs += implied(request.knobs, target, True)
    return request


def _read_parameter(entry: Any, into: dict[str, Any]) -> None:
    key, inner = wire.map_entry(wire.view(entry))
    into[key] = wire.parameter(inner)


def _parameters(tensor: memoryview, number: int) -> dict[str, Any]:
    """Of an input or requested output."""
    found: dict[str, Any] = {}
    for n, _, value in wire.fields(tensor):
        if n == number:
            _read_parameter(value, found)
    return found


def _read_input(
    entry: memoryview, raw: memoryview | None, target: Target, seen: dict[str, NDArray[Any]]
) -> tuple[str, NDArray[Any]]:
    name, datatype, shape = "", "", []
    contents: memoryview | None = None
    for n, kind, value in wire.fields(entry):
        if n == 1:
            name = wire.text(value)
        elif n == 2:
            datatype = wire.text(value)
        elif n == 3:
            shape += wire.integers(kind, value)
        elif n == 5:
            contents = wire.view(value)
    refuse_shared_memory(_parameters(entry, 4), f'input "{name}"')
    spec, dims = check_input(name, datatype, shape, target, seen)
    if raw is not None:
        if contents is not None and len(contents):
            raise BadInput(f'input "{name}" has both contents and raw_input_contents; send one of them')
        return name, tensor_values.from_bytes(raw, spec, dims)
    return name, tensor_values.from_values(_typed(contents, spec, math.prod(dims)), spec, dims)


def _typed(contents: memoryview | None, spec: TensorSpec, count: int) -> NDArray[Any]:
    """`count`: elements of the shape; more are not read."""
    number = _CONTENTS.get(spec.datatype)
    if number is None:
        raise BadInput(f'input "{spec.name}" is {spec.datatype}, which has no typed field; use raw_input_contents')
    parts: list[Any] = []
    size = 0
    for n, kind, value in wire.fields(contents or memoryview(b""), most=count + wire.MOST_FIELDS):
        if n != number:
            raise BadInput(f'input "{spec.name}" is {spec.datatype} but its contents are of another type')
        if number == 8:
            parts.append(wire.text(value))
            continue
        if number in (6, 7):
            parts.append(wire.floats(kind, value, "<f4" if number == 6 else "<f8"))
        else:
            integers = wire.integer_array(kind, value, most=count - size, unsigned=number in (4, 5))
            if not len(integers):
                continue
            parts.append(tensor_values.cast(integers != 0 if number == 1 else integers, spec))
        size += len(parts[-1])
    if number == 8:
        return np.array(parts, object)
    return np.concatenate(parts) if parts else np.zeros(0, NUMPY[spec.datatype])


def _read_output(entry: memoryview, target: Target, seen: list[Wanted]) -> Wanted:
    name = ""
    for n, _, value in wire.fields(entry):
        if n == 1:
            name = wire.text(value)
    return check_output(name, _parameters(entry, 2), True, target, seen)


def write_answer(model: Model, request: InferRequest, tensors: dict[str, NDArray[Any]]) -> list[bytes | memoryview]:
    """ModelInferResponse with raw contents, which is what clients look for first."""
    id_ = wire.field(3, request.id or "")
    arrays = [tensors[wanted.name] for wanted in request.outputs]
    shapes = tuple(array.shape for array in arrays)
    plan = request.plan
    if plan is not None and (written := plan.answers.get(shapes)) is not None:
        found: list[bytes | memoryview] = [written[0], id_]
        for opening, array in zip(written[1:], arrays, strict=True):
            found += (opening, to_bytes(array))
        return found
    naming = wire.field(1, model.name) + wire.field(2, model.version)
    outputs, raws = [], []
    for wanted, array in zip(request.outputs, arrays, strict=True):
        if wanted.classes:
            array = classification(array, wanted.classes, model.class_names)
        about = wire.field(1, wanted.name) + wire.field(2, datatype_of(array)) + wire.packed(3, array.shape)
        outputs.append(wire.message(5, about))
        raws.append(to_bytes(array))
    openings = [wire.opening(6, len(raw)) for raw in raws]
    openings[0] = b"".join(outputs) + openings[0]
    sized = not any(w.classes for w in request.outputs) and all(array.dtype.kind not in "OSU" for array in arrays)
    if plan is not None and sized and len(plan.answers) < 16:  # what is as long for other values
        plan.answers[shapes] = (naming, *openings)
    return [naming, id_, *(part for pair in zip(openings, raws, strict=True) for part in pair)]


def model_of(data: memoryview) -> tuple[str, str | None]:
    """Name and version: the first two fields of every message about a model."""
    name, version = "", ""
    for n, kind, value in wire.fields(data):
        if kind == wire.BYTES and n == 1:
            name = wire.text(value)
        elif kind == wire.BYTES and n == 2:
            version = wire.text(value)
    return name, version or None


def model_to_load(data: memoryview) -> tuple[str, list[str]]:
    """Name and the names of the parameters of RepositoryModelLoad and -Unload."""
    name, parameters = "", []
    for n, _, value in wire.fields(data):
        if n == 2:
            name = wire.text(value)
        elif n == 3:
            parameters.append(wire.map_entry(wire.view(value))[0])
    return name, parameters


def server_metadata(server: dict[str, Any]) -> bytes:
    extensions = b"".join(wire.field(3, e) for e in server["extensions"])
    return wire.field(1, server["name"]) + wire.field(2, server["version"]) + extensions


def model_metadata(model: dict[str, Any]) -> bytes:
    out = wire.field(1, model["name"]) + b"".join(wire.field(2, v) for v in model["versions"])
    out += wire.field(3, model["platform"])
    out += b"".join(wire.message(4, _tensor(t)) for t in model["inputs"])
    return out + b"".join(wire.message(5, _tensor(t)) for t in model["outputs"])


def _tensor(tensor: dict[str, Any]) -> bytes:
    return wire.field(1, tensor["name"]) + wire.field(2, tensor["datatype"]) + wire.packed(3, tensor["shape"])


def index(rows: list[dict[str, str]]) -> bytes:
    """RepositoryIndexResponse."""
    keys = ("name", "version", "state", "reason")
    return b"".join(wire.message(1, b"".join(wire.field(n, r[k]) for n, k in enumerate(keys, 1))) for r in rows)


def statistics(stats: dict[str, Any]) -> bytes:
    def duration(number: int, value: dict[str, int]) -> bytes:
        return wire.message(number, wire.number(1, value["count"]) + wire.number(2, value["ns"]))

    names = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
    out = wire.field(1, stats["name"]) + wire.field(2, stats["version"]) + wire.number(3, stats["last_inference"])
    out += wire.number(4, stats["inference_count"]) + wire.number(5, stats["execution_count"])
    inner = stats["inference_stats"]
    out += wire.message(6, b"".join(duration(n, inner[name]) for n, name in enumerate(names, 1)))
    for batch in stats["batch_stats"]:
        body = wire.number(1, batch["batch_size"])
        body += b"".join(duration(n, batch[k]) for n, k in enumerate(names[3:6], 2))
        out += wire.message(7, body)
    return out


def config(config: dict[str, Any]) -> bytes:
    """ModelConfigResponse."""
    out = wire.field(1, config["name"]) + wire.field(2, config["platform"])
    out += wire.number(4, config["max_batch_size"])
    for number, dims, side in ((5, 4, config["input"]), (6, 3, config["output"])):
        for entry in side:
            kind = DATA_TYPES.index(entry["data_type"].removeprefix("TYPE_"))
            body = wire.field(1, entry["name"]) + wire.number(2, kind) + wire.packed(dims, entry["dims"])
            out += wire.message(number, body)
    out += wire.field(8, config["default_model_filename"])
    parameters = {key: wire.field(1, value["string_value"]) for key, value in config["parameters"].items()}
    return wire.message(1, out + wire.write_map(14, parameters) + wire.field(17, config["backend"]))
