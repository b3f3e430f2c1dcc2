"""A cut graph holds what its values need; new names reach into branches."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from calibrant.export.graph.cutting import cut, needed_nodes, rename, rename_all


def model() -> onnx.ModelProto:
    """x -> a -> b; x -> c; If (reads a) -> d."""
    then = helper.make_graph([helper.make_node("Neg", ["a"], ["t"])], "then", [], [onnx.ValueInfoProto(name="t")])
    other = helper.make_graph([helper.make_node("Abs", ["x"], ["e"])], "else", [], [onnx.ValueInfoProto(name="e")])
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Neg", ["x"], ["c"]),
        helper.make_node("If", ["yes"], ["d"], then_branch=then, else_branch=other),
    ]
    value = helper.make_tensor_value_info
    weights = [numpy_helper.from_array(np.float32(2), "w"), numpy_helper.from_array(np.array(True), "yes")]
    graph = helper.make_graph(nodes, "g", [value("x", 1, ["n"])], [value("b", TensorProto.FLOAT, ["n"])], weights)
    return helper.make_model(graph)


def test_needed_nodes_follow_branches() -> None:
    assert [n.output[0] for n in needed_nodes(model().graph, {"d"})] == ["a", "d"]


def test_cut_leaves_weights_and_nodes_that_are_needed() -> None:
    m = model()
    cut(m, {"b"})
    assert [n.output[0] for n in m.graph.node] == ["a", "b"]
    assert [t.name for t in m.graph.initializer] == ["w"]
    assert [o.name for o in m.graph.output] == ["b"]


def test_new_names_reach_into_branches() -> None:
    m = model()
    rename(m, "a", "features")
    inner = next(a.g for a in m.graph.node[3].attribute if a.name == "then_branch")
    assert inner.node[0].input[0] == "features"
    assert m.graph.node[0].output[0] == "features"
    rename_all(m.graph, {"w": "weight", "x": "images"})
    assert m.graph.node[0].input == ["images", "weight"]
    assert m.graph.initializer[0].name == "weight"
