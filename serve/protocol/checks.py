"""What must be right about a request before it may join a batch: names, datatypes, shapes in exact integers.

Shared by JSON, binary and gRPC. Refusals are of status 400 and say which tensor and what was expected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from calibrant.errors import did_you_mean
from calibrant.serve.engine.knobs import NAMES, Knobs
from calibrant.serve.protocol.errors import BadInput, cut, kind, shown
from calibrant.serve.protocol.request import InferRequest, Target, Wanted
from calibrant.serve.protocol.tensors import TensorSpec

MAX_DIMS = 16


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
            raise BadInput(f'input "{name}" is missing; the model takes {inputs_line(target)}')
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


def implied(knobs: Knobs, target: Target, binary: bool) -> list[Wanted]:
    """The derived outputs that the knobs are about, for a request that names no outputs."""
    asked = {
        "prediction_set": knobs.coverage is not None,
        "abstained": knobs.abstain_below is not None,
        "ood_score": knobs.ood,
        "top": knobs.top_k is not None,
    }
    return [Wanted(name, binary) for name, on in asked.items() if on and name in target.derived]


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


def refuse_shared_memory(own: Mapping[str, Any], what: str) -> None:
    """Overlooked, a client would take whatever lies in its region for the answer."""
    if "shared_memory_region" in own:
        raise BadInput(
            f"{what} lies in shared memory, which this server does not read or write; send it in the message"
        )


def flag(value: Any, what: str, default: bool) -> bool:
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadInput(f"{what} must be true or false, got {shown(value)}")
    return value


def object_of(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"{what} must be an object, got {kind(value)}")
    return value


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


def _timeout(parameters: Mapping[str, Any]) -> float | None:
    """Triton's `timeout`, microseconds in the queue; 0 is none."""
    value = parameters.get("timeout")
    if value is None or value == 0:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        raise BadInput(f"timeout must be a number of microseconds, got {shown(value)}")
    return float(value) / 1e6


def inputs_line(target: Target) -> str:
    return ", ".join(f"{s.name} {s.datatype} {list(s.shape)}" for s in target.inputs.values() if not s.optional)
