"""Open Inference Protocol v2 requests as bytes, JSON and with the binary tensor extension; `answers` are apart.

Everything about a request is checked here, before it may join a batch: names, datatypes, shapes in exact integers,
sizes, finite values. Refusals are of status 400 and say which tensor and what was expected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from numpy.typing import NDArray

from calibrant.errors import did_you_mean
from calibrant.serve.engine.knobs import NAMES, Knobs
from calibrant.serve.protocol.errors import BadInput, cut, kind, shown
from calibrant.serve.protocol.tensor_values import from_bytes, from_json
from calibrant.serve.protocol.tensors import NUMPY, TensorSpec

MAX_DIMS = 16
MAX_PLAN = 2048  # bytes of JSON that are worth remembering


@dataclass(slots=True)
class Plan:
    """A checked JSON head whose tensors are all binary: the next request with the same bytes needs no second look."""

    inputs: list[tuple[TensorSpec, tuple[int, ...], int]]  # with the size in bytes
    total: int
    request: InferRequest  # without its tensors
    needed: tuple[str, ...] = ()  # outputs of the graph that its answer is made of
    answers: dict[tuple[tuple[int, ...], ...], bytes] = field(default_factory=dict)  # JSON of the answer, by shapes


@dataclass(frozen=True)
class Target:
    """What a request to one model is checked against."""

    name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]  # what the graph returns
    derived: Mapping[str, TensorSpec]  # what the server computes from it when asked
    batched: bool
    max_rows: int
    knobs: bool  # whether the file has a card, so that knobs mean something
    plans: dict[bytes, Plan] = field(default_factory=dict, compare=False)


@dataclass(slots=True)
class Wanted:
    """A requested output."""

    name: str
    binary: bool
    classes: int = 0  # k of the classification extension, 0 for the tensor itself


@dataclass(slots=True)
class InferRequest:
    feeds: dict[str, NDArray[Any]]
    rows: int
    outputs: list[Wanted]
    id: str | None = None
    knobs: Knobs | None = None
    timeout: float | None = None  # seconds
    parameters: Mapping[str, Any] = field(default_factory=dict)
    plan: Plan | None = None  # where the JSON head is an old acquaintance
    pictures: bool = False  # came by /predict, which answers from probabilities and logits


def parse(body: memoryview, header_length: int | None, target: Target) -> InferRequest:
    """The request in a body whose first `header_length` bytes are JSON (None: all of it)."""
    if header_length == 0:
        return _parse_raw(body, target)
    size = len(body) if header_length is None else header_length
    if size > len(body):
        raise BadInput(f"Inference-Header-Content-Length is {size} but the body has {len(body)} bytes")
    head = bytes(body[:size]) if header_length is not None and size <= MAX_PLAN else None
    if head is not None and (plan := target.plans.get(head)) is not None and plan.total == len(body) - size:
        return _follow(plan, body[size:])
    request, inputs = _parse_message(json_object(body[:size]), body[size:], target)
    if head is not None and inputs is not None and request.id is None:
        if len(target.plans) >= 256:
            target.plans.clear()
        bare = replace(request, feeds={})
        bare.plan = target.plans[head] = Plan(inputs, len(body) - size, bare)
    return request


def _follow(plan: Plan, tail: memoryview) -> InferRequest:
    """The request that a known head describes, over these bytes."""
    feeds, at, known = {}, 0, plan.request
    for spec, shape, size in plan.inputs:
        feeds[spec.name] = from_bytes(tail[at : at + size], spec, shape)
        at += size
    return InferRequest(feeds, known.rows, known.outputs, None, known.knobs, known.timeout, known.parameters, plan=plan)


def json_object(text: memoryview) -> dict[str, Any]:
    if not len(text):
        raise BadInput("the request has no body; send a JSON object with `inputs`")
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"the request is not valid JSON ({error})") from None
    if not isinstance(message, dict):
        raise BadInput(f"the request must be a JSON object, got {kind(message)}")
    return message


def _parse_message(
    message: dict[str, Any], tail: memoryview, target: Target
) -> tuple[InferRequest, list[tuple[TensorSpec, tuple[int, ...], int]] | None]:
    """The request, and its inputs as a plan has them if all are binary."""
    inputs = message.get("inputs")
    if not isinstance(inputs, list) or not inputs:
        raise BadInput("`inputs` must be a list with one object for each input of the model")
    parameters = _object(message.get("parameters"), "parameters")
    feeds: dict[str, NDArray[Any]] = {}
    planned: list[tuple[TensorSpec, tuple[int, ...], int]] = []
    at = 0
    for entry in inputs:
        name, spec, shape = _input_header(entry, target, feeds)
        own = _object(entry.get("parameters"), f'parameters of input "{name}"')
        refuse_shared_memory(own, f'input "{name}"')
        size = own.get("binary_data_size")
        if size is None:
            feeds[name] = from_json(entry.get("data"), spec, shape)
            continue
        if "data" in entry:
            raise BadInput(f'input "{name}" has both `data` and `binary_data_size`; send one of them')
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise BadInput(f'binary_data_size of input "{name}" must be a whole number of bytes, got {shown(size)}')
        if size > len(tail) - at:
            raise BadInput(f'input "{name}" claims {size} binary bytes but {len(tail) - at} are left in the body')
        feeds[name] = from_bytes(tail[at : at + size], spec, shape)
        planned.append((spec, shape, size))
        at += size
    if at != len(tail):
        raise BadInput(f"{len(tail) - at} bytes follow the last binary input; the sizes do not add up to the body")
    outputs = _outputs(message.get("outputs"), parameters, target)
    request = assemble(feeds, outputs, parameters, message.get("id"), target)
    if request.knobs is not None and not message.get("outputs"):
        request.outputs += implied(request.knobs, target, _flag(parameters.get("binary_data_output"), "", False))
    return request, planned if len(planned) == len(feeds) else None


def implied(knobs: Knobs, target: Target, binary: bool) -> list[Wanted]:
    """The derived outputs that the knobs are about, for a request that names no outputs."""
    asked = {
        "prediction_set": knobs.coverage is not None, "abstained": knobs.abstain_below is not None,
        "ood_score": knobs.ood, "top": knobs.top_k is not None,
    }  # fmt: skip
    return [Wanted(name, binary) for name, on in asked.items() if on and name in target.derived]


def assemble(
    feeds: dict[str, NDArray[Any]],
    outputs: list[Wanted],
    parameters: Mapping[str, Any],
    request_id: Any,
    target: Target,
) -> InferRequest:
    """The checks that concern the request as a whole; shared by JSON, binary and gRPC."""
    for name, spec in target.inputs.items():
        if name not in feeds and not spec.optional:
            raise BadInput(f'input "{name}" is missing; the model takes {_inputs_line(target)}')
    rows = _rows(feeds, target)
    if request_id is not None and not isinstance(request_id, str):
        raise BadInput(f"`id` must be a string, got {kind(request_id)}")
    knobs = None
    for key in parameters:
        if key in NAMES:
            if not target.knobs:
                raise BadInput(f'"{key}" needs a model exported by calibrant, and {target.name} has no calibrant block')
            knobs = Knobs.parse(parameters)
            break
    return InferRequest(feeds, rows, outputs, request_id, knobs, _timeout(parameters), parameters)


def _input_header(
    entry: Any, target: Target, seen: Mapping[str, NDArray[Any]]
) -> tuple[str, TensorSpec, tuple[int, ...]]:
    if not isinstance(entry, dict):
        raise BadInput(f"each of `inputs` must be an object, got {kind(entry)}")
    name = entry.get("name")
    if not isinstance(name, str):
        raise BadInput(f"an input has no `name`; the model takes {_inputs_line(target)}")
    return name, *check_input(name, entry.get("datatype"), entry.get("shape"), target, seen)


def check_input(
    name: str, datatype: Any, shape: Any, target: Target, seen: Mapping[str, NDArray[Any]]
) -> tuple[TensorSpec, tuple[int, ...]]:
    spec = target.inputs.get(name)
    if spec is None:
        raise BadInput(f'the model has no input "{cut(name)}"; {did_you_mean(name, target.inputs)}')
    if name in seen:
        raise BadInput(f'input "{name}" is given twice')
    if not isinstance(datatype, str):
        raise BadInput(f'input "{name}" has no `datatype`; the model takes {spec.datatype}')
    if datatype != spec.datatype:
        raise BadInput(f'input "{name}" must be {spec.datatype}, got {cut(datatype)}')
    if not isinstance(shape, list | tuple) or len(shape) > MAX_DIMS:
        raise BadInput(f'input "{name}" needs a `shape`, a list of up to {MAX_DIMS} whole numbers')
    for dim in shape:
        if type(dim) is not int or dim < 0:
            raise BadInput(f'shape of input "{name}" must hold whole numbers of at least 0, got {shown(dim)}')
    dims: tuple[int, ...] = tuple(shape)
    if len(dims) != len(spec.shape) or any(want not in (-1, got) for want, got in zip(spec.shape, dims, strict=True)):
        raise BadInput(f'input "{name}" must have the shape {list(spec.shape)}, got {shown(list(dims))}')
    if 0 in dims:
        raise BadInput(f'input "{name}" has no elements (shape {shown(list(dims))})')
    # A request of 10^18 rows of a string costs nothing to write: bound it before anything is reserved for it.
    if target.batched and dims and dims[0] > target.max_rows:
        raise BadInput(f'input "{name}" has {dims[0]} rows, more than the {target.max_rows} that one request may have')
    return spec, dims


def refuse_shared_memory(own: Mapping[str, Any], what: str) -> None:
    """Overlooked, a client would take whatever lies in its region for the answer."""
    if "shared_memory_region" in own:
        raise BadInput(
            f"{what} lies in shared memory, which this server does not read or write; send it in the message"
        )


def _rows(feeds: Mapping[str, NDArray[Any]], target: Target) -> int:
    """Rows of the request; a knob tensor may have one row for all."""
    if not target.batched:
        return 1
    counts = {name: len(a) for name, a in feeds.items() if not target.inputs[name].optional}
    rows = next(iter(counts.values()))
    for name, count in counts.items():
        if count != rows:
            raise BadInput(f'input "{name}" has {count} rows and "{next(iter(counts))}" has {rows}')
    for name, array in feeds.items():
        if target.inputs[name].optional and array.ndim and len(array) not in (1, rows):
            raise BadInput(f'input "{name}" has {len(array)} rows; give 1, or {rows} as the request has')
    return rows


def _outputs(entries: Any, parameters: Mapping[str, Any], target: Target) -> list[Wanted]:
    default = _flag(parameters.get("binary_data_output"), "binary_data_output", False)
    if entries is None or entries == []:
        return [Wanted(name, default) for name in target.outputs]
    if not isinstance(entries, list):
        raise BadInput(f"`outputs` must be a list of objects with a `name`, got {kind(entries)}")
    wanted: list[Wanted] = []
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise BadInput("each of `outputs` must be an object with a `name`")
        own = _object(entry.get("parameters"), f'parameters of output "{cut(name)}"')
        wanted.append(check_output(name, own, _flag(own.get("binary_data"), "binary_data", default), target, wanted))
    return wanted


def check_output(name: str, own: Mapping[str, Any], binary: bool, target: Target, seen: Sequence[Wanted]) -> Wanted:
    spec = target.outputs.get(name) or target.derived.get(name)
    if spec is None:
        known = [*target.outputs, *target.derived]
        raise BadInput(f'the model has no output "{cut(name)}"; {did_you_mean(name, known)}')
    if any(w.name == name for w in seen):
        raise BadInput(f'output "{name}" is asked for twice')
    refuse_shared_memory(own, f'output "{name}"')
    classes = own.get("classification", 0)
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 0:
        raise BadInput(f'classification of output "{name}" must be a whole number of classes, got {shown(classes)}')
    if classes and (len(spec.shape) != 2 or spec.datatype not in ("FP32", "FP64", "FP16")):
        raise BadInput(f'output "{name}" is {spec.datatype} {list(spec.shape)}: classification needs [rows, classes]')
    return Wanted(name, binary, classes)


def _parse_raw(body: memoryview, target: Target) -> InferRequest:
    """A raw binary request (header length 0): the body is the one input, its free axis deduced from the size."""
    required = [s for s in target.inputs.values() if not s.optional]
    if len(required) != 1 or required[0].datatype == "BYTES":
        raise BadInput("a raw binary request (Inference-Header-Content-Length: 0) needs a model with one numeric input")
    spec = required[0]
    free = [i for i, d in enumerate(spec.shape) if d == -1]
    fixed = math.prod(d for d in spec.shape if d != -1) * NUMPY[spec.datatype].itemsize
    if len(free) > 1 or not len(body) or len(body) % fixed or (not free and len(body) != fixed):
        raise BadInput(f'{len(body)} raw bytes do not fill input "{spec.name}" {spec.datatype} {list(spec.shape)}')
    shape = [d if d != -1 else len(body) // fixed for d in spec.shape]
    spec, dims = check_input(spec.name, spec.datatype, shape, target, {})
    outputs = [Wanted(name, False) for name in target.outputs]
    return assemble({spec.name: from_bytes(body, spec, dims)}, outputs, {}, None, target)


def _object(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"{what} must be an object, got {kind(value)}")
    return value


def _flag(value: Any, what: str, default: bool) -> bool:
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadInput(f"{what} must be true or false, got {shown(value)}")
    return value


def _timeout(parameters: Mapping[str, Any]) -> float | None:
    """Triton's `timeout`, microseconds in the queue; 0 is none."""
    value = parameters.get("timeout")
    if value is None or value == 0:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        raise BadInput(f"timeout must be a number of microseconds, got {shown(value)}")
    return float(value) / 1e6


def _inputs_line(target: Target) -> str:
    return ", ".join(f"{s.name} {s.datatype} {list(s.shape)}" for s in target.inputs.values() if not s.optional)
