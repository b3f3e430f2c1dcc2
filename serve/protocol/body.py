"""A V2 request as a body: JSON, JSON with binary tensors behind it, or one input's bytes; `answer` is its twin."""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
from numpy.typing import NDArray

from calibrant.serve.protocol.checks import (
    assemble,
    check_input,
    check_output,
    flag,
    implied,
    inputs_line,
    object_of,
    refuse_shared_memory,
)
from calibrant.serve.protocol.errors import BadInput, TooLarge, cut, kind, shown
from calibrant.serve.protocol.request import InferRequest, Plan, Target, Wanted
from calibrant.serve.protocol.tensor_values import from_bytes, from_json
from calibrant.serve.protocol.tensors import NUMPY, TensorSpec

LARGE_JSON = 64 << 10  # bytes above which another process reads it
LISTS_AT_ONCE = 4096  # so many lists make a smaller one as slow
# Of one body. What costs is not its depth but the number of objects that Python makes of it: 60 MB of [7],[7],... took
# seconds and a gigabyte. 4 Mi brackets are 80 pictures of 224 pixels, each pixel in a list of its own.
MOST_LISTS, MOST_OBJECTS, MOST_KEYS = 4 << 20, 100_000, 200_000
MAX_PLAN = 2048  # bytes of JSON that are worth remembering
_ID = re.compile(rb'\{"id": ?"([^"\\\x00-\x1f]*)", ?')


def is_costly(body: memoryview, header_length: int | None) -> bool:
    """Whether reading the JSON would keep other callers waiting."""
    size = len(body) if header_length is None else header_length
    return size > LARGE_JSON or (size > LISTS_AT_ONCE and bytes(body[:size]).count(b"[") > LISTS_AT_ONCE)


def refuse_large_json(size: int, target: Target) -> None:
    most = target.most_json
    if size > most:
        raise TooLarge(f"the JSON has {size} bytes; at most {most} are taken for this model, so send binary tensors")


def refuse_large_tensors(size: int, target: Target) -> None:
    most = target.most_binary
    if most is not None and size > most:
        rows = f"of {target.max_rows} rows " if target.batched else ""
        raise TooLarge(f"the binary tensors have {size} bytes; all inputs {rows}of this model together have {most}")


def parse(body: memoryview, header_length: int | None, target: Target) -> InferRequest:
    """The request in a body whose first `header_length` bytes are JSON (None: all of it)."""
    if header_length == 0:
        return _parse_raw(body, target)
    size = len(body) if header_length is None else header_length
    if size > len(body):
        raise BadInput(f"Inference-Header-Content-Length is {size} but the body has {len(body)} bytes")
    head, id_ = None, None
    if header_length is not None and size <= MAX_PLAN:
        head = bytes(body[:size])
        plan = target.plans.get(head)
        if plan is None:
            head, id_ = _without_id(head)
            plan = target.plans.get(head)
        if plan is not None and plan.total == len(body) - size:
            return _follow(plan, body[size:], id_)
    request, inputs = parse_message(json_object(body[:size]), body[size:], target)
    if head is not None and inputs is not None and request.id == id_:
        if len(target.plans) >= 256:
            target.plans.clear()
        bare = replace(request, feeds={}, id=None)
        bare.plan = target.plans[head] = Plan(inputs, len(body) - size, bare)
    return request


def _without_id(head: bytes) -> tuple[bytes, str | None]:
    """The head without the id that clients write first, and the id: requests that differ in it alone are one plan.

    As it is where the id may mean something else than its bytes (an escape, a second `id` that would win)."""
    found = _ID.match(head)
    if found is None or b'"id"' in head[found.end() :]:
        return head, None
    try:
        return b"{" + head[found.end() :], found[1].decode()
    except UnicodeDecodeError:
        return head, None


def json_object(text: memoryview) -> dict[str, Any]:
    if not len(text):
        raise BadInput("the request has no body; send a JSON object with `inputs`")
    try:
        message = _loads(text)
    except orjson.JSONDecodeError as error:
        if "memory" in error.msg:  # of its buffers
            raise MemoryError from None
        raise BadInput(f"the request is not valid JSON ({error})") from None
    if not isinstance(message, dict):
        raise BadInput(f"the request must be a JSON object, got {kind(message)}")
    return message


def _follow(plan: Plan, tail: memoryview, id_: str | None) -> InferRequest:
    """The request that a known head describes, over these bytes."""
    feeds, at, known = {}, 0, plan.request
    for spec, shape, size in plan.inputs:
        feeds[spec.name] = from_bytes(tail[at : at + size], spec, shape)
        at += size
    return InferRequest(feeds, known.rows, known.outputs, id_, known.knobs, known.timeout, known.parameters, plan=plan)


def _loads(text: memoryview) -> Any:
    """The JSON, unless there is too much in it; without the garbage collector, which takes three quarters of the time
    where many lists are made and would find nothing."""
    raw: bytes | memoryview = text
    if len(text) > LARGE_JSON:
        raw = bytes(text)
        bounds = ((b"[", MOST_LISTS, "lists"), (b"{", MOST_OBJECTS, "objects"), (b":", MOST_KEYS, "keys"))
        for sign, most, what in bounds:
            if raw.count(sign) > most:
                raise TooLarge(f"the JSON has more than {most} {what}; send tensors flat, or as binary data")
    on = gc.isenabled()
    gc.disable()
    try:
        return orjson.loads(raw)
    finally:
        if on:
            gc.enable()


def parse_message(
    message: dict[str, Any], tail: memoryview, target: Target
) -> tuple[InferRequest, list[tuple[TensorSpec, tuple[int, ...], int]] | None]:
    """The request, and its inputs as a plan has them if all are binary."""
    inputs = message.get("inputs")
    if not isinstance(inputs, list) or not inputs:
        raise BadInput("`inputs` must be a list with one object for each input of the model")
    parameters = object_of(message.get("parameters"), "parameters")
    feeds: dict[str, NDArray[Any]] = {}
    planned: list[tuple[TensorSpec, tuple[int, ...], int]] = []
    at = 0
    for entry in inputs:
        name, spec, shape = _input_header(entry, target, feeds)
        own = object_of(entry.get("parameters"), f'parameters of input "{name}"')
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
        request.outputs += implied(request.knobs, target, flag(parameters.get("binary_data_output"), "", False))
    return request, planned if len(planned) == len(feeds) else None


def _input_header(
    entry: Any, target: Target, seen: Mapping[str, NDArray[Any]]
) -> tuple[str, TensorSpec, tuple[int, ...]]:
    if not isinstance(entry, dict):
        raise BadInput(f"each of `inputs` must be an object, got {kind(entry)}")
    name = entry.get("name")
    if not isinstance(name, str):
        raise BadInput(f"an input has no `name`; the model takes {inputs_line(target)}")
    return name, *check_input(name, entry.get("datatype"), entry.get("shape"), target, seen)


def _outputs(entries: Any, parameters: Mapping[str, Any], target: Target) -> list[Wanted]:
    default = flag(parameters.get("binary_data_output"), "binary_data_output", False)
    if entries is None or entries == []:
        return [Wanted(name, default) for name in target.outputs]
    if not isinstance(entries, list):
        raise BadInput(f"`outputs` must be a list of objects with a `name`, got {kind(entries)}")
    wanted: list[Wanted] = []
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise BadInput("each of `outputs` must be an object with a `name`")
        own = object_of(entry.get("parameters"), f'parameters of output "{cut(name)}"')
        wanted.append(check_output(name, own, flag(own.get("binary_data"), "binary_data", default), target, wanted))
    return wanted


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
