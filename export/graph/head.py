"""Finds the classifier in an exported graph and cuts the graph in two: the body, and the matrix that ends it.

Walks back from the logits through constant scales, shifts and shape operators to the Gemm, MatMul or 1x1 convolution
that makes them, composing everything into one W, b in float64. Cosine heads, bias-free heads, heads inside wrapper
modules and convolutional heads on pooled features all come out as the same matrix. Where anything else lies between
(an activation, two averaged heads), there is no such matrix, and the tail starts from the logits instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from calibrant.export.graph.fold import Array
from calibrant.runtime import runtime

SHAPE_OPS = {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"}


@dataclass(frozen=True)
class FoundHead:
    """logits = weight @ x + bias with x the graph's value `source`, [N, D] or (flatten) [N, D, 1, 1]."""

    source: str
    weight: Array
    bias: Array
    flatten: bool


class Graph:
    """Who makes which value of an ONNX graph, and which values are constant."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.producer = {out: node for node in model.graph.node for out in node.output}
        self.initializers = {t.name: t for t in model.graph.initializer}
        values = [*model.graph.value_info, *model.graph.input, *model.graph.output]
        self.shapes = {v.name: _shape(v) for v in values}
        self._constant: dict[str, bool] = {}

    def is_constant(self, name: str) -> bool:
        """Does the value depend on nothing but initializers?"""
        if name not in self._constant:
            node = self.producer.get(name)
            if name in self.initializers:
                self._constant[name] = True
            elif node is None or node.op_type.startswith("Random"):
                self._constant[name] = False
            else:
                self._constant[name] = all(self.is_constant(i) for i in node.input if i)
        return self._constant[name]

    def constant(self, name: str) -> NDArray[Any]:
        """The value of a constant, computed by onnxruntime where it is not an initializer.

        The exporter leaves larger ones unfolded, for example the normalised weight of a cosine head.
        """
        if name in self.initializers:
            return np.asarray(numpy_helper.to_array(self.initializers[name]))
        ort = runtime()

        nodes = needed_nodes(self.model.graph, {name})
        used = {i for node in nodes for i in node.input}
        part = onnx.helper.make_graph(
            nodes,
            "constant",
            [],
            [onnx.ValueInfoProto(name=name)],
            [t for t in self.model.graph.initializer if t.name in used],
        )
        small = onnx.helper.make_model(part, opset_imports=self.model.opset_import, ir_version=self.model.ir_version)
        inferred = onnx.shape_inference.infer_shapes(small)
        for value in inferred.graph.value_info:
            if value.name == name:
                small.graph.output[0].CopyFrom(value)
        session = ort.InferenceSession(small.SerializeToString(), providers=["CPUExecutionProvider"])
        return np.asarray(session.run([name], {})[0])


def find_head(model: onnx.ModelProto, logits: str, classes: int) -> FoundHead | None:
    """The matrix behind `logits`, or None where nothing simple makes them."""
    return _head_of(Graph(model), logits, classes)


def _head_of(graph: Graph, value: str, classes: int) -> FoundHead | None:
    node = graph.producer.get(value)
    if node is None:
        return None
    if node.op_type in SHAPE_OPS:
        shape = graph.shapes.get(node.input[0])
        return _head_of(graph, node.input[0], classes) if shape is not None and _is_row_of(shape, classes) else None
    if node.op_type not in ("Mul", "Div", "Add", "Sub"):
        return _matrix(graph, node, classes)
    left, right = node.input
    if node.op_type in ("Add", "Sub") and not graph.is_constant(left) and not graph.is_constant(right):
        return _sum(_head_of(graph, left, classes), _head_of(graph, right, classes), node.op_type == "Sub")
    step = _elementwise(graph, node, classes)
    inner = _head_of(graph, step[0], classes) if step is not None else None
    if step is None or inner is None:
        return None
    _, factor, offset = step
    return FoundHead(inner.source, factor[:, None] * inner.weight, factor * inner.bias + offset, inner.flatten)


def _sum(one: FoundHead | None, two: FoundHead | None, minus: bool) -> FoundHead | None:
    """Two heads on the same features are one matrix (LeViT, EfficientFormer)."""
    if one is None or two is None or one.source != two.source:
        return None
    sign = -1.0 if minus else 1.0
    return FoundHead(one.source, one.weight + sign * two.weight, one.bias + sign * two.bias, one.flatten)


def _elementwise(graph: Graph, node: onnx.NodeProto, classes: int) -> tuple[str, Array, Array] | None:
    """The moving input of an operator with one constant input, and what the operator does: factor, offset."""
    left, right = node.input
    if graph.is_constant(left) == graph.is_constant(right):
        return None
    moving, fixed = (right, left) if graph.is_constant(left) else (left, right)
    values = np.asarray(graph.constant(fixed), np.float64)
    if values.size not in (1, classes) or (values.size == classes and values.shape[-1:] != (classes,)):
        return None
    c = np.broadcast_to(values.reshape(-1), (classes,)) if values.size > 1 else np.full(classes, float(values.item()))
    zero, one = np.zeros(classes), np.ones(classes)
    if node.op_type == "Mul":
        return moving, c, zero
    if node.op_type == "Add":
        return moving, one, c
    if node.op_type == "Sub":
        return (moving, one, -c) if fixed == right else (moving, -one, c)
    return (moving, 1.0 / c, zero) if fixed == right else None


def _matrix(graph: Graph, node: onnx.NodeProto, classes: int) -> FoundHead | None:
    """The head that a single Gemm, MatMul or 1x1 convolution is."""
    if node.op_type not in ("Gemm", "MatMul", "Conv") or not graph.is_constant(node.input[1]):
        return None
    if len(node.input) > 2 and node.input[2] and not graph.is_constant(node.input[2]):
        return None
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    shape = graph.shapes.get(node.input[0])
    weight = np.asarray(graph.constant(node.input[1]), np.float64)
    bias = np.asarray(graph.constant(node.input[2]), np.float64) if len(node.input) > 2 and node.input[2] else None
    flatten = False
    if node.op_type == "Conv":
        if shape is None or len(shape) != 4 or shape[2:] != (1, 1) or weight.shape[2:] != (1, 1):
            return None
        if attributes.get("group", 1) != 1 or any(attributes.get("pads", [])):
            return None
        weight, flatten = weight[:, :, 0, 0], True
    elif node.op_type == "MatMul":
        if weight.ndim != 2 or shape is None or len(shape) != 2:
            return None
        weight = weight.T
    else:
        if attributes.get("transA", 0):
            return None
        weight = (weight if attributes.get("transB", 0) else weight.T) * attributes.get("alpha", 1.0)
        bias = None if bias is None else bias * attributes.get("beta", 1.0)
    if weight.shape[0] != classes:
        return None
    full = np.zeros(classes) if bias is None else np.broadcast_to(bias.reshape(-1), (classes,)).astype(np.float64)
    return FoundHead(node.input[0], weight, full, flatten)


def needed_nodes(graph: onnx.GraphProto, values: set[str]) -> list[onnx.NodeProto]:
    """The nodes that the values depend on, in the graph's order."""
    needed, kept = set(values), []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(i for i in node.input if i)
            for attribute in node.attribute:
                if attribute.g.node:
                    needed.update(i for inner in attribute.g.node for i in inner.input if i)
    return kept[::-1]


def cut(model: onnx.ModelProto, values: set[str]) -> None:
    """Leaves in `model` what the values need, with them as its outputs."""
    graph = model.graph
    nodes = needed_nodes(graph, values)
    used = {i for node in nodes for i in node.input} | {
        i for node in nodes for a in node.attribute for inner in a.g.node for i in inner.input
    }
    made = {out for node in nodes for out in node.output}
    known = {v.name: v for v in [*graph.value_info, *graph.output]}
    outputs = [known.get(name) or onnx.ValueInfoProto(name=name) for name in sorted(values)]
    outputs = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in outputs]
    initializers = [t for t in graph.initializer if t.name in used]
    infos = [v for v in graph.value_info if v.name in made and v.name not in values]
    for field, items in (
        ("node", nodes), ("initializer", initializers), ("value_info", infos), ("output", outputs),
    ):  # fmt: skip
        copies = [type(item).FromString(item.SerializeToString()) for item in items]
        del getattr(graph, field)[:]
        getattr(graph, field).extend(copies)


def rename(model: onnx.ModelProto, old: str, new: str) -> None:
    """Gives a value of the graph another name."""
    for node in model.graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name == old:
                    names[i] = new
    for value in [*model.graph.value_info, *model.graph.output, *model.graph.input]:
        if value.name == old:
            value.name = new


def _shape(value: onnx.ValueInfoProto) -> tuple[int | str, ...] | None:
    if not value.type.tensor_type.HasField("shape"):
        return None
    return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param for d in value.type.tensor_type.shape.dim)


def _is_row_of(shape: tuple[int | str, ...], classes: int) -> bool:
    """[N, C], [N, C, 1, 1] and the like: a reshape of it cannot mix classes."""
    return len(shape) >= 2 and shape[1] == classes and all(d == 1 for d in shape[2:]) and isinstance(shape[0], str)
