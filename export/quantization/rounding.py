"""Rounds a convolution's weights to int8 so that its output moves least, instead of each weight to its nearest step.

With weights W (O, K) of one group, inputs x (K) and H = E[x x^T], the output's squared error is
tr((W - Q) H (W - Q)^T). Columns are rounded one after another, the ones that carry most first, and what is lost at one
is made up by those that are still free: with U the upper Cholesky factor of H^-1,
    q_i = round(w_i / s),  e_i = (w_i - s q_i) / U_ii,  w_j <- w_j - e_i U_ij for j > i.
Source: Frantar et al. 2023 (GPTQ, arXiv 2210.17323), after Hassibi and Stork 1993 (optimal brain surgeon).
Differs: for convolutions, so K runs over the patch and every group has its own H; the largest weight of an output
channel keeps its step, because onnxruntime's quantizer takes the scale s = max |w| / 127 from it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from calibrant.export.checks.parity import session
from calibrant.export.graph.head import Graph

Array = NDArray[np.float64]
LEVELS = 127
DAMPING = 0.01  # of the mean diagonal of H, added to it: directions that no image shows
WIDEST = 1536  # of K: wider convolutions are rounded to nearest, their H would take gigabytes
POSITIONS = 128  # output positions per image that H is taken from
BATCH = 8


@dataclass(frozen=True)
class Conv:
    """What of a Conv node decides which inputs an output sees."""

    node: onnx.NodeProto
    weight: NDArray[np.float32]  # (O, C / groups, kh, kw)
    groups: int
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]  # top, left, bottom, right
    dilations: tuple[int, int]

    @classmethod
    def of(cls, node: onnx.NodeProto, weight: NDArray[np.float32]) -> Conv | None:
        """None for what is left to the nearest step."""
        found: dict[str, Any] = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if weight.ndim != 4 or found.get("auto_pad", b"NOTSET") != b"NOTSET" or weight[0].size > WIDEST:
            return None
        return cls(
            node,
            weight,
            int(found.get("group", 1)),
            tuple(found.get("strides", (1, 1))),
            tuple(found.get("pads", (0, 0, 0, 0))),
            tuple(found.get("dilations", (1, 1))),
        )

    def patches(self, x: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """Inputs of some output positions, (groups, n, K)."""
        top, left, bottom, right = self.pads
        x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
        (kh, kw), (sh, sw), (dh, dw) = self.weight.shape[2:], self.strides, self.dilations
        rows, columns = (
            (n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(x.shape[2:], (dh, dw), (kh, kw), (sh, sw), strict=True)
        )
        place = np.sort(rng.permutation(rows * columns)[:POSITIONS])
        r = (place // columns * sh)[:, None, None] + (np.arange(kh) * dh)[:, None]
        c = (place % columns * sw)[:, None, None] + (np.arange(kw) * dw)
        seen = x[:, :, r, c]  # (B, C, P, kh, kw)
        b, channels, p = seen.shape[:3]
        seen = seen.reshape(b, self.groups, channels // self.groups, p, kh * kw).transpose(1, 0, 3, 2, 4)
        return np.ascontiguousarray(seen.reshape(self.groups, b * p, -1))


def rounded_weights(model: onnx.ModelProto, images: NDArray[Any]) -> dict[str, NDArray[np.float32]]:
    """Weights on the int8 grid of their channel by name of the Conv node, from what the images send through it."""
    graph = Graph(model)
    convs = []
    for node in model.graph.node:
        if node.op_type == "Conv" and graph.is_constant(node.input[1]):
            conv = Conv.of(node, graph.constant(node.input[1]))
            if conv is not None:
                convs.append(conv)
    moments = _moments(model, convs, images)
    out = {}
    for conv, h in zip(convs, moments, strict=True):
        w = conv.weight.astype(np.float64).reshape(conv.groups, -1, h.shape[-1])
        out[conv.node.name] = compensated(w, h).reshape(conv.weight.shape).astype(np.float32)
    return out


def _moments(model: onnx.ModelProto, convs: list[Conv], images: NDArray[Any]) -> list[Array]:
    """H of each convolution, (groups, K, K)."""
    inputs = list(dict.fromkeys(c.node.input[0] for c in convs))
    probe = copy.deepcopy(model)
    del probe.graph.output[:]
    probe.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in inputs)
    run, rng = session(probe.SerializeToString()), np.random.default_rng(0)
    total = [np.zeros((c.groups, c.weight[0].size, c.weight[0].size)) for c in convs]
    rows = [0] * len(convs)
    for start in range(0, len(images), BATCH):
        found = dict(zip(inputs, run.run(inputs, {"images": np.asarray(images[start : start + BATCH])}), strict=True))
        for k, conv in enumerate(convs):
            x = conv.patches(found[conv.node.input[0]], rng)
            total[k] += x.transpose(0, 2, 1) @ x
            rows[k] += x.shape[1]
    return [h / max(1, n) for h, n in zip(total, rows, strict=True)]


def compensated(w: Array, h: Array) -> Array:
    """Rounded w (groups, O, K) for the moments h (groups, K, K); every value is a multiple of its row's scale."""
    size = w.shape[-1]
    scale = np.maximum(np.abs(w).max(-1), 1e-12) / LEVELS
    largest = np.abs(w).argmax(-1)
    diagonal = np.diagonal(h, axis1=1, axis2=2)
    h = h + np.eye(size) * np.maximum(DAMPING * diagonal.mean(1), 1e-12)[:, None, None]
    order = np.argsort(-diagonal, axis=1)
    left = np.take_along_axis(w, order[:, None], 2)
    h = np.take_along_axis(np.take_along_axis(h, order[:, :, None], 1), order[:, None], 2)
    u = np.linalg.cholesky(np.linalg.inv(h)).transpose(0, 2, 1)
    steps = np.empty_like(left)
    for i in range(size):
        step = np.clip(np.round(left[:, :, i] / scale), -LEVELS, LEVELS)
        original = np.take_along_axis(w, order[:, None, i : i + 1], 2)[..., 0]
        steps[:, :, i] = np.where(largest == order[:, i : i + 1], LEVELS * np.sign(original), step)
        error = (left[:, :, i] - steps[:, :, i] * scale) / u[:, i, i][:, None]
        left[:, :, i + 1 :] -= error[..., None] * u[:, None, i, i + 1 :]
    back = np.argsort(order, axis=1)
    return np.asarray(np.take_along_axis(steps, back[:, None], 2) * scale[..., None])


def with_weights(model: onnx.ModelProto, weights: dict[str, NDArray[np.float32]]) -> onnx.ModelProto:
    """A copy in which the named Conv nodes have other weights; a weight that two nodes share becomes two."""
    changed = copy.deepcopy(model)
    for node in changed.graph.node:
        if node.name in weights:
            name = f"{node.input[1]}_rounded_{node.name}"
            changed.graph.initializer.append(numpy_helper.from_array(weights[node.name], name))
            node.input[1] = name
    used = {i for n in changed.graph.node for i in n.input}
    kept = [i for i in changed.graph.initializer if i.name in used]
    del changed.graph.initializer[:]
    changed.graph.initializer.extend(kept)
    return changed
