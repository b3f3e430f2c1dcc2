"""From a foreign graph to the body of a deployed file: cut at the classifier, behind the pixels' way in."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from calibrant.artifacts.model_card import Head
from calibrant.errors import ModelError
from calibrant.export.adoption.free_batch import free_batch
from calibrant.export.adoption.reading.ending import Ending
from calibrant.export.adoption.reading.foreign import Foreign
from calibrant.export.adoption.reading.found import Seen
from calibrant.export.adoption.reading.input_side import ForeignInput, add_prologue
from calibrant.export.adoption.reading.values import Arrays, run_values
from calibrant.export.graph.cutting import cut
from calibrant.export.graph.fold import Array
from calibrant.export.graph.head import FoundHead, add_features, find_head
from calibrant.images.declared.declaration import Declared

log = logging.getLogger(__name__)
OPSET = 18  # the tail's operators
LOST = {"float32": 1e-4, "float16": 5e-3, "int8": 0.1}  # of the terms of a logit, between a matrix and the graph


@dataclass(frozen=True)
class ForeignBody:
    model: onnx.ModelProto
    head: Head
    weight: Array | None
    bias: Array | None
    width: int | None  # of the features
    batch: int | str  # "N" where it is free

    @property
    def found(self) -> str:
        if self.weight is None:
            return "no one matrix makes the logits: the tail starts from them"
        return f"classifier {self.weight.shape[1]} -> {self.weight.shape[0]}"


def make_body(
    foreign: Foreign,
    taken: ForeignInput,
    ending: Ending,
    seen: Seen,
    classes: int,
    declared: Declared,
    *,
    floor: float | None = None,
    matrix: bool = True,
    independent: bool = False,
) -> ForeignBody:
    """`floor`: the scores are probabilities for which no logits exist; their logarithm, with this least value, is
    taken, and of independent labels log p - log(1 - p). Without `matrix` the tail starts from the logits, whatever
    makes them."""
    model = onnx.ModelProto()
    model.CopyFrom(foreign.model)
    shapes = {name: array.shape for name, array in seen.arrays.items()}
    value = ending.logits
    columns = seen.arrays[value][0].size
    found = None if floor is not None or not matrix else find_head(model, value, columns, shapes)
    if found is not None and not _confirmed(found, seen.arrays, value, foreign.precision):
        log.debug("the matrix that was found does not give the graph's logits")
        found = None
    rows = taken.batch or "N"
    if found is None:
        _add_logits(model, value, columns, classes, rows, floor, independent)
        head, weight, bias, width = Head(kind="logits", input="raw_logits"), None, None, None
        kept = "raw_logits"
    else:
        half = seen.arrays[found.source].dtype != np.float32 if found.source in seen.arrays else False
        add_features(model, found, "features", batch=rows, half=half)
        weight, bias = found.weight, found.bias
        if columns == 1 and classes == 2:  # one sigmoid is a softmax over [0, s]
            weight = np.vstack([np.zeros_like(weight), weight])
            bias = np.concatenate([np.zeros_like(bias), bias])
        width, kept = weight.shape[1], "features"
        head = Head(feature_dim=width)
    cut(model, {kept})
    model = raised(model, {taken.name: seen.feed}, kept)
    add_prologue(model, taken, declared, declared.preprocessing.size)
    batch = (taken.batch if foreign.scales_by_batch else None) or free_batch(
        model, kept, taken.batch, taken, declared.preprocessing.size
    )
    return ForeignBody(model, head, weight, bias, width, batch)


def _confirmed(found: FoundHead, arrays: Arrays, value: str, precision: str) -> bool:
    """Does the matrix on the source give the logits that the run showed?"""
    x = arrays.get(found.source)
    if x is None:
        return True  # the proof on the finished file sees it
    f = np.asarray(x, np.float64)
    f = f.mean((2, 3)) if found.pool else f.reshape(len(f), -1)
    if f.shape[1] != found.weight.shape[1]:
        return False
    z = np.asarray(arrays[value], np.float64).reshape(len(f), -1)
    got = f @ found.weight.T + found.bias
    terms = np.abs(f) @ np.abs(found.weight).T + np.abs(found.bias)
    return bool(np.abs(got - z).max() <= LOST[precision] * max(float(terms.max()), 1e-6))


def _add_logits(
    model: onnx.ModelProto,
    value: str,
    columns: int,
    classes: int,
    rows: int | str,
    floor: float | None,
    independent: bool = False,
) -> None:
    """Appends what turns a value into `raw_logits`, float32 [N, C]."""
    graph = model.graph

    def put(op: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        made = output or f"adopted_end{len(graph.node)}"
        graph.node.append(helper.make_node(op, list(inputs), [made], name=made, **attributes))
        return made

    def constant(name: str, x: float) -> str:
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray([x], np.float32), name))
        return name

    value = put("Cast", put("Flatten", value, axis=1), to=TensorProto.FLOAT)
    if floor is not None and independent:
        least = constant("adopted_floor", floor)
        p, q = (put("Max", v, least) for v in (value, put("Sub", constant("adopted_one", 1.0), value)))
        value = put("Sub", put("Log", p), put("Log", q))
    elif floor is not None:
        if columns == 1 and classes == 2:
            value = put("Concat", put("Sub", constant("adopted_one", 1.0), value), value, axis=1)
            columns = 2
        value = put("Log", put("Max", value, constant("adopted_floor", floor)))
    elif columns == 1 and classes == 2:
        value = put("Concat", put("Mul", value, constant("adopted_zero", 0.0)), value, axis=1)
    put("Identity", value, output="raw_logits")
    graph.value_info.append(helper.make_tensor_value_info("raw_logits", TensorProto.FLOAT, [rows, classes]))


def raised(model: onnx.ModelProto, feeds: dict[str, NDArray[Any]], kept: str) -> onnx.ModelProto:
    """The same graph in an opset that the tail's operators are in, seen to give the same."""
    main = next((o for o in model.opset_import if o.domain in ("", "ai.onnx")), None)
    if main is None:
        model.opset_import.append(helper.make_opsetid("", OPSET))
        return model
    if main.version >= OPSET:
        return model
    before, old = run_values(model, [kept], feeds)[kept], main.version
    why = "onnx cannot convert it"
    for attempt in (_converted, _renumbered):
        try:
            new = attempt(model)
            after = run_values(new, [kept], feeds)[kept]
        except Exception as error:  # the converter raises what its C++ throws
            why = str(error).strip().split("\n", 1)[0][:200]
            continue
        if after.shape == before.shape and np.allclose(after, before, rtol=1e-3, atol=1e-4 * np.abs(before).max()):
            return new
        why = "the converted graph gives other values"
    raise ModelError(
        f"is of opset {old} and cannot be brought to {OPSET} ({why})", fix=f"export it again with opset {OPSET}"
    )


def _converted(model: onnx.ModelProto) -> onnx.ModelProto:
    new: onnx.ModelProto = onnx.version_converter.convert_version(model, OPSET)
    new.ir_version = model.ir_version
    for other in model.opset_import:
        if other.domain not in {o.domain for o in new.opset_import} | {"ai.onnx"}:
            new.opset_import.append(other)
    return new


def _renumbered(model: onnx.ModelProto) -> onnx.ModelProto:
    """Where no operator has changed in between, the number is all there is to change."""
    new = onnx.ModelProto()
    new.CopyFrom(model)
    for entry in new.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = OPSET
    return new
