"""Finds the classifier in an exported graph: the matrix that ends it.

Walks back from the logits through constant scales, shifts and shape operators to the Gemm, MatMul or 1x1 convolution
that makes them, composing everything into one W, b in float64. Cosine heads, bias-free heads, heads inside wrapper
modules and convolutional heads on pooled features all come out as the same matrix. Where anything else lies between
(an activation, two averaged heads), there is no such matrix, and the tail starts from the logits instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from calibrant.export.graph.cutting import needed_nodes
from calibrant.export.graph.fold import Array
from calibrant.runtime import runtime

SHAPE_OPS = {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"}
INERT_OPS = {"Dropout", "Cast", "QuantizeLinear", "DequantizeLinear"}  # of a float value, while predicting
FLOATS = (1, 10, 11, 16)

Shape = tuple[int | str, ...]


@dataclass(frozen=True)
class FoundHead:
    """logits = weight @ x + bias with x the graph's value `source`, [N, D] or (flatten) [N, D, 1, 1].

    With `pool`, x is the mean over the places of `source` [N, D, H, W]: a pool behind a 1x1 convolution is one before.
    """

    source: str
    weight: Array
    bias: Array
    flatten: bool
    pool: bool = False


class Graph:
    """Who makes which value of an ONNX graph, and which values are constant."""

    def __init__(self, model: onnx.ModelProto, shapes: Mapping[str, Shape] | None = None) -> None:
        """`shapes` of values as a run has shown them take the place of those that the file states."""
        self.model = model
        self.producer = {out: node for node in model.graph.node for out in node.output}
        self.initializers = {t.name: t for t in model.graph.initializer}
        values = [*model.graph.value_info, *model.graph.input, *model.graph.output]
        self.shapes = {v.name: _shape(v) for v in values} | dict(shapes or {})
        self._constant: dict[str, bool] = {}

    def is_constant(self, name: str) -> bool:
        """Does the value depend on nothing but initializers?"""
        if name not in self._constant:
            node = self.producer.get(name)
            if name in self.initializers:
                self._constant[name] = True
            elif node is None or node.op_type.startswith("Random") or any(a.HasField("g") for a in node.attribute):
                self._constant[name] = False  # a branch or loop reads values that are not among its inputs
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


def find_head(
    model: onnx.ModelProto, logits: str, classes: int, shapes: Mapping[str, Shape] | None = None
) -> FoundHead | None:
    """The matrix behind `logits`, or None where nothing simple makes them."""
    return _head_of(Graph(model, shapes), logits, classes)


def _head_of(graph: Graph, value: str, classes: int) -> FoundHead | None:
    node = graph.producer.get(value)
    if node is None:
        return None
    if node.op_type in SHAPE_OPS or _inert(node):
        shape = graph.shapes.get(node.input[0])
        return _head_of(graph, node.input[0], classes) if shape is not None and _is_row_of(shape, classes) else None
    if node.op_type == "BatchNormalization":
        norm = norm_of(graph, node)
        found = None if norm is None or len(norm[0]) != classes else _head_of(graph, node.input[0], classes)
        if norm is None or found is None:
            return None
        return replace(found, weight=norm[0][:, None] * found.weight, bias=norm[0] * found.bias + norm[1])
    if pools_places(graph, node):
        return _pooled(graph, node.input[0], classes)
    if node.op_type not in ("Mul", "Div", "Add", "Sub"):
        return _matrix(graph, node, classes)
    left, right = node.input
    if node.op_type in ("Add", "Sub") and not graph.is_constant(left) and not graph.is_constant(right):
        return _sum(graph, _head_of(graph, left, classes), _head_of(graph, right, classes), node.op_type == "Sub")
    step = _elementwise(graph, node, classes)
    inner = _head_of(graph, step[0], classes) if step is not None else None
    if step is None or inner is None:
        return None
    _, factor, offset = step
    return replace(inner, weight=factor[:, None] * inner.weight, bias=factor * inner.bias + offset)


def _sum(graph: Graph, one: FoundHead | None, two: FoundHead | None, minus: bool) -> FoundHead | None:
    """Two heads on the same features are one matrix (EfficientFormer), each behind its own norm too (LeViT, RepViT)."""
    if one is None or two is None:
        return None
    if one.source != two.source:
        one, two = _before_norm(graph, one), _before_norm(graph, two)
    if one.source != two.source or (one.flatten, one.pool) != (two.flatten, two.pool):
        return None
    sign = -1.0 if minus else 1.0
    return replace(one, weight=one.weight + sign * two.weight, bias=one.bias + sign * two.bias)


def _before_norm(graph: Graph, head: FoundHead) -> FoundHead:
    """The same head on what its batch normalisation takes, where that is a constant map."""
    node = graph.producer.get(head.source)
    norm = None if node is None or node.op_type != "BatchNormalization" else norm_of(graph, node)
    if node is None or norm is None or len(norm[0]) != head.weight.shape[1]:
        return head
    scale, shift = norm
    return replace(head, source=node.input[0], weight=head.weight * scale, bias=head.bias + head.weight @ shift)


def norm_of(graph: Graph, node: onnx.NodeProto) -> tuple[Array, Array] | None:
    """A batch normalisation as a map of each channel, x -> scale x + shift."""
    if not all(graph.is_constant(i) for i in node.input[1:5]):
        return None
    gamma, beta, mean, variance = (np.asarray(graph.constant(i), np.float64) for i in node.input[1:5])
    epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
    scale = gamma / np.sqrt(variance + epsilon)
    return scale, beta - scale * mean


def pools_places(graph: Graph, node: onnx.NodeProto) -> bool:
    """Is it the mean over all places of [N, C, H, W]?"""
    shape = graph.shapes.get(node.input[0]) if node.input else None
    if shape is None or len(shape) != 4 or node.op_type not in ("GlobalAveragePool", "ReduceMean", "AveragePool"):
        return False
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "GlobalAveragePool":
        return True
    if node.op_type == "AveragePool":
        whole = list(attributes.get("kernel_shape", [])) == list(shape[2:])
        return whole and not any(attributes.get("pads", []))
    axes = attributes.get("axes")
    if axes is None and len(node.input) > 1 and node.input[1] and graph.is_constant(node.input[1]):
        axes = graph.constant(node.input[1]).tolist()
    return axes is not None and sorted(a % 4 for a in axes) == [2, 3]


def _pooled(graph: Graph, value: str, classes: int) -> FoundHead | None:
    """A 1x1 convolution before a mean over places: the mean of its input, then its matrix."""
    node = graph.producer.get(value)
    while node is not None and _inert(node):
        node = graph.producer.get(node.input[0])
    if node is None or node.op_type != "Conv":
        return None
    strides = next((list(a.ints) for a in node.attribute if a.name == "strides"), [])
    if any(s != 1 for s in strides):
        return None
    found = _matrix(graph, node, classes, places=True)
    return None if found is None else replace(found, flatten=True, pool=True)


def _inert(node: onnx.NodeProto) -> bool:
    """Does it leave the values of a float tensor as they are, but for rounding?"""
    if node.op_type == "Cast":
        return any(a.name == "to" and a.i in FLOATS for a in node.attribute)
    return node.op_type in INERT_OPS


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


def _matrix(graph: Graph, node: onnx.NodeProto, classes: int, *, places: bool = False) -> FoundHead | None:
    """The head that a single Gemm, MatMul or 1x1 convolution is; with `places` at any number of them."""
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
        if shape is None or len(shape) != 4 or weight.shape[2:] != (1, 1):
            return None
        if not places and tuple(shape[2:]) != (1, 1):
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


def add_features(model: onnx.ModelProto, head: FoundHead, name: str, *, batch: int | str, half: bool = False) -> None:
    """Appends to the graph what turns `head.source` into `name`, float32 [N, D]."""
    nodes, value = model.graph.node, head.source

    def put(op: str, made: str, **attributes: int) -> str:
        nodes.append(onnx.helper.make_node(op, [value], [made], name=f"{name}_{op.lower()}", **attributes))
        return made

    if head.pool:
        value = put("GlobalAveragePool", f"{name}_pooled")
    if head.flatten:
        value = put("Flatten", f"{name}_flat" if half else name, axis=1)
    if half:
        value = put("Cast", name, to=onnx.TensorProto.FLOAT)
    if value != name:
        put("Identity", name)
    info = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [batch, head.weight.shape[1]])
    model.graph.value_info.append(info)


def _shape(value: onnx.ValueInfoProto) -> Shape | None:
    if not value.type.tensor_type.HasField("shape"):
        return None
    return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param for d in value.type.tensor_type.shape.dim)


def _is_row_of(shape: Shape, classes: int) -> bool:
    """[N, C], [N, C, 1, 1] and the like: a reshape of it cannot mix classes."""
    return len(shape) >= 2 and shape[1] == classes and all(d == 1 for d in shape[2:])
