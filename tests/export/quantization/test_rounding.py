"""Weights that are rounded for the output of their layer."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from calibrant.export.checks.parity import session
from calibrant.export.quantization.rounding import LEVELS, Conv, compensated, rounded_weights, with_weights

Array = NDArray[np.float64]


def nearest(w: Array) -> Array:
    scale = np.abs(w).max(-1, keepdims=True) / LEVELS
    return np.asarray(np.round(w / scale) * scale)


def error(w: Array, q: Array, h: Array) -> float:
    return float(np.einsum("goi,gij,goj->", w - q, h, w - q))


def test_two_columns_by_hand() -> None:
    # scale .01; the second input follows the first, so what the first weight loses (.004) goes there: .506 -> .51
    w = np.array([[[0.504, 0.502, 1.27]]])
    h = np.array([[[2.0, 1.9999, 0.0], [1.9999, 1.999, 0.0], [0.0, 0.0, 1e-9]]])
    np.testing.assert_allclose(nearest(w), [[[0.50, 0.50, 1.27]]], atol=1e-12)
    np.testing.assert_allclose(compensated(w, h), [[[0.50, 0.51, 1.27]]], atol=1e-12)


def test_independent_inputs_leave_the_nearest_step() -> None:
    w = np.random.default_rng(0).normal(size=(2, 5, 7))
    h = np.tile(np.diag([4.0, 3, 2, 1, 1, 1, 0.5]), (2, 1, 1))
    np.testing.assert_allclose(compensated(w, h), nearest(w), atol=1e-12)


def test_output_moves_less_on_the_grid_and_the_scale_stays() -> None:
    rng = np.random.default_rng(1)
    w = rng.normal(size=(3, 16, 24))
    x = rng.normal(size=(3, 400, 6)) @ rng.normal(size=(3, 6, 24)) + 0.1 * rng.normal(size=(3, 400, 24))
    h = x.transpose(0, 2, 1) @ x / 400
    q = compensated(w, h)
    assert error(w, q, h) < 0.25 * error(w, nearest(w), h)
    steps = q / (np.abs(w).max(-1, keepdims=True) / LEVELS)
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-9)
    np.testing.assert_allclose(np.abs(q).max(-1), np.abs(w).max(-1), rtol=1e-12)


def test_dead_inputs_and_zero_weights_are_finite() -> None:
    w = np.zeros((1, 2, 3))
    w[0, 0] = [0.3, -1.0, 0.2]
    q = compensated(w, np.zeros((1, 3, 3)))
    assert np.isfinite(q).all()
    np.testing.assert_allclose(q[0, 1], 0)
    np.testing.assert_allclose(q, nearest(np.where(w == 0, 1e-30, w)), atol=1e-12)


@pytest.mark.parametrize(
    ("groups", "strides", "pads", "dilations"),
    [(1, [1, 1], [0, 0, 0, 0], [1, 1]), (4, [2, 2], [0, 0, 1, 1], [1, 1]), (2, [1, 2], [2, 1, 2, 1], [2, 1])],
)
def test_patches_are_what_the_convolution_reads(
    groups: int, strides: list[int], pads: list[int], dilations: list[int]
) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2, 4, 9, 8)).astype(np.float32)
    weight = rng.normal(size=(8, 4 // groups, 3, 3)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=groups, strides=strides, pads=pads, dilations=dilations)
    conv = Conv.of(node, weight)
    assert conv is not None
    seen = conv.patches(x, np.random.default_rng(0))
    got = np.einsum("gnk,gok->gon", seen, weight.reshape(groups, 8 // groups, -1))  # (groups, O / groups, B P)
    y = one_node(node, weight).run(None, {"x": x})[0]
    want = y.reshape(2, 8, -1).transpose(1, 0, 2).reshape(8, -1)
    np.testing.assert_allclose(got.reshape(8, -1), want, atol=1e-4)


def one_node(node: onnx.NodeProto, weight: NDArray[np.float32]) -> object:
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_empty_tensor_value_info("y")], [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return session(model.SerializeToString())


def test_only_the_named_nodes_change_and_only_in_the_copy() -> None:
    w = np.random.default_rng(3).normal(size=(4, 3, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["images", "w"], ["a"], name="one"),
        helper.make_node("Conv", ["images", "w"], ["b"], name="two"),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 3, 6, 6])],
        [helper.make_empty_tensor_value_info(n) for n in "ab"], [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    before = model.SerializeToString()
    images = np.random.default_rng(4).normal(size=(9, 3, 6, 6)).astype(np.float32)
    found = rounded_weights(model, images)
    assert set(found) == {"one", "two"}
    changed = with_weights(model, {"two": found["two"]})
    assert model.SerializeToString() == before
    a, b = session(changed.SerializeToString()).run(["a", "b"], {"images": images})
    np.testing.assert_allclose(a, np.einsum("oc,nchw->nohw", w[..., 0, 0], images), atol=1e-5)
    np.testing.assert_allclose(b, np.einsum("oc,nchw->nohw", found["two"][..., 0, 0], images), atol=1e-5)
    assert np.abs(a - b).max() > 1e-3


def test_wide_convolutions_are_left_to_the_nearest_step() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    assert Conv.of(node, np.zeros((1, 512, 3, 3), np.float32)) is None
    assert Conv.of(helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER"), np.zeros((1, 1, 3, 3))) is None
