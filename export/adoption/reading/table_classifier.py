"""Classifiers of tables as their converters write them (skl2onnx, onnxmltools): logits brought to light.

A ZipMap, which makes a list of dictionaries, becomes the matrix that it was made of. A classifier operator that ends in
its own softmax gives its raw scores and a Softmax behind them; a linear one becomes the matrix that it is. Two columns
that are one margin s with both signs, [-s, s] with p = sigmoid(s), are logits when halved: softmax of them as they are
would be off by up to .15.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from calibrant.errors import ModelError

ML = "ai.onnx.ml"
CLASSIFIERS = {"LinearClassifier", "TreeEnsembleClassifier", "SVMClassifier"}
SOFTMAX_SINCE = 13  # over one axis and not all from it on; on matrices the two are one


@dataclass(frozen=True)
class TableClassifier:
    """What the operators say: names of the classes, and whether scores come as one margin with both signs."""

    classes: tuple[str, ...] | None = None
    margin: bool = False


def open_up(model: onnx.ModelProto) -> TableClassifier:
    """Rewrites the graph in place; the outputs keep their names and, but for a ZipMap's, their values."""
    zipped: list[tuple[str, ...] | None] = []
    inside: list[tuple[str, ...] | None] = []
    margin, made = False, _Nodes(model)
    for node in model.graph.node:
        if node.domain == ML and node.op_type == "ZipMap":
            zipped.append(_labels(node))
            made.add("Identity", [node.input[0]], node.output[0])
            _as_matrix(model.graph, node.output[0])
        elif node.domain == ML and node.op_type in CLASSIFIERS:
            inside.append(_labels(node))
            margin = _scores(made, node, len(inside[-1] or ())) or margin
        elif node.domain == ML and node.op_type == "Normalizer" and node.input[0] in made.sums_to_one:
            made.add("Identity", [node.input[0]], node.output[0])
        else:
            made.nodes.append(node)
    if made.changed:
        kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in made.nodes]
        del model.graph.node[:]
        model.graph.node.extend(kept)
        if not any(o.domain in ("", "ai.onnx") for o in model.opset_import):
            model.opset_import.append(helper.make_opsetid("", SOFTMAX_SINCE))
    # of several classifiers (one against the rest, stacked) none names the classes of the whole
    named = zipped or (inside if len(inside) == 1 else [None])
    return TableClassifier(named[0], margin)


class _Nodes:
    """The graph's nodes as they become."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.nodes: list[onnx.NodeProto] = []
        self.sums_to_one: set[str] = set()
        self.changed = False
        self.read_by: dict[str, set[str]] = {}
        for node in model.graph.node:
            for name in node.input:
                self.read_by.setdefault(name, set()).add(node.op_type)

    def add(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.changed = True
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"opened_{len(self.nodes)}", **attributes))
        return output

    def constant(self, name: str, values: Any) -> str:
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name


def _scores(made: _Nodes, node: onnx.NodeProto, classes: int) -> bool:
    """One classifier operator; is its output a margin with both signs?"""
    post = _text(node, "post_transform", "NONE")
    if node.op_type == "SVMClassifier" and classes > 2 and not _attribute(node, "prob_a"):
        raise ModelError(
            "is a one-against-one machine, whose columns are pairs of classes and not classes",
            fix="train it with probability=True, or one against the rest",
        )
    softmax = post == "SOFTMAX" or (post == "LOGISTIC" and classes == 2)
    two_signs = classes == 2 and post in ("LOGISTIC", "NONE") and node.op_type == "LinearClassifier"
    if post == "NONE" and made.read_by.get(node.output[1], set()) - {"ZipMap", "Identity"}:
        two_signs = False  # what others read stays as it is: of a LinearSVC's margin, one of the two columns
    if not softmax and not two_signs:
        made.nodes.append(node)
        return False
    value = node.output[1]
    raw = value if not softmax else f"{value}_raw"
    if node.op_type == "LinearClassifier":
        weight = np.asarray(_attribute(node, "coefficients"), np.float64).reshape(classes, -1)
        bias = np.asarray(_attribute(node, "intercepts") or np.zeros(classes), np.float64)
        two_signs = two_signs and bool(np.allclose(weight[0], -weight[1]) and np.allclose(bias[0], -bias[1]))
        if post == "NONE" and not two_signs:
            made.nodes.append(node)
            return False
        made.nodes.append(_without_scores(node))
        factor = 0.5 if two_signs else 1.0
        w = made.constant(f"{value}_weight", factor * weight)
        made.add("Gemm", [node.input[0], w, made.constant(f"{value}_bias", factor * bias)], raw, transB=1)
    else:
        bare = onnx.NodeProto()
        bare.CopyFrom(node)
        del bare.attribute[:]
        bare.attribute.extend([a for a in node.attribute if a.name != "post_transform"])
        bare.attribute.append(helper.make_attribute("post_transform", "NONE"))
        bare.output[1] = raw if post == "SOFTMAX" else f"{value}_margin"
        made.nodes.append(bare)
        made.changed = True
        if post == "LOGISTIC":
            made.add("Mul", [f"{value}_margin", made.constant(f"{value}_half", [0.5])], raw)
    if softmax:
        made.sums_to_one.add(made.add("Softmax", [raw], value, axis=1))
    return two_signs and not softmax


def _without_scores(node: onnx.NodeProto) -> onnx.NodeProto:
    """The operator for its labels alone."""
    bare = onnx.NodeProto()
    bare.CopyFrom(node)
    bare.output[1] = f"{node.output[1]}_unread"
    return bare


def _as_matrix(graph: onnx.GraphProto, name: str) -> None:
    for value in graph.output:
        if value.name == name:
            value.ClearField("type")
            value.type.CopyFrom(helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None))


def _labels(node: onnx.NodeProto) -> tuple[str, ...] | None:
    for name in ("classlabels_strings", "classlabels_int64s", "classlabels_ints"):
        found = _attribute(node, name)
        if found:
            return tuple(v.decode() if isinstance(v, bytes) else str(v) for v in found)
    return None


def _attribute(node: onnx.NodeProto, name: str) -> Any:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), None)


def _text(node: onnx.NodeProto, name: str, default: str) -> str:
    found = _attribute(node, name)
    return default if found is None else found.decode()
