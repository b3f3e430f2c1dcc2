"""The way in: what a foreign graph takes, and the pixels' way to it.

An adopted file takes uint8 pictures as every deployed file does. In front of the network stand: channels to where it
wants them (on bytes, which costs nothing), a cast, blue before red where it was trained so, (x/255 - mean)/std.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from calibrant.errors import ModelError
from calibrant.export.adoption.pictures import random_pictures
from calibrant.export.graph.head import Graph
from calibrant.images.declared.declaration import Declared

DTYPES: dict[int, type[np.generic]] = {
    TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16, TensorProto.UINT8: np.uint8,
    TensorProto.DOUBLE: np.float64,
}  # fmt: skip
PREFIX = "adopted_"


@dataclass(frozen=True)
class ForeignInput:
    name: str
    elem: int  # TensorProto.DataType
    layout: str  # NCHW, NHWC, or NF: rows of numbers
    size: tuple[int, int] | None  # None where the graph leaves it open
    batch: int | None  # None where it is free
    width: int = 0  # numbers in a row, of NF

    @property
    def rows(self) -> bool:
        return self.layout == "NF"

    @property
    def scaled_inside(self) -> bool:
        """Bytes go in, so the graph scales them itself."""
        return bool(self.elem == TensorProto.UINT8)

    @property
    def ours(self) -> str:
        """The name of the adopted file's input."""
        return "rows" if self.rows else "images"

    def random(self, count: int, size: tuple[int, int]) -> NDArray[Any]:
        """Pictures, or rows of numbers of many magnitudes."""
        if not self.rows:
            return random_pictures(count, size)
        rng = np.random.default_rng(0)
        spread = 10.0 ** rng.uniform(-1, 1.5, (count, 1))
        return (spread * rng.normal(0.5, 1, (count, self.width))).astype(np.float32)

    def feed(self, pixels: NDArray[Any], declared: Declared) -> NDArray[Any]:
        """Pictures [N, H, W, 3], or rows [N, F], as the foreign file takes them."""
        if self.rows:
            return np.ascontiguousarray(pixels.astype(DTYPES[self.elem]))
        if self.scaled_inside:
            x: NDArray[Any] = pixels[..., ::-1] if declared.bgr else pixels
            return np.ascontiguousarray(x if self.layout == "NHWC" else np.moveaxis(x, -1, 1))
        x = declared.preprocessing.normalise(pixels)
        x = x[:, ::-1] if declared.bgr else x
        x = np.moveaxis(x, 1, -1) if self.layout == "NHWC" else x
        return np.ascontiguousarray(x.astype(DTYPES[self.elem]))


def read_input(model: onnx.ModelProto, *, wanted: tuple[int, int] | None = None) -> ForeignInput:
    """The one picture input, by its shape; where the shape leaves the layout open, by the operator that takes it."""
    values = list(model.graph.input)
    if len(values) != 1:
        names = ", ".join(v.name for v in values) or "none"
        raise ModelError(
            f"takes {len(values)} inputs, expected one picture input: {names}",
            fix="export it with a single input" if len(values) < 2 else "export it again with the others as constants",
        )
    value = values[0]
    elem = value.type.tensor_type.elem_type
    if elem not in DTYPES:
        kind = TensorProto.DataType.Name(elem).lower() if elem else "no tensor"
        raise ModelError(f'its input "{value.name}" is {kind}, expected float32, float16 or uint8 pictures')
    dims = [d.dim_value if d.HasField("dim_value") else None for d in value.type.tensor_type.shape.dim]
    batch = dims[0] if dims and dims[0] else None
    if len(dims) == 2:
        if not dims[1]:
            raise ModelError(f'its input "{value.name}" does not say how many numbers a row has')
        return ForeignInput(value.name, elem, "NF", (1, dims[1]), batch, dims[1])
    if len(dims) != 4:
        raise ModelError(f'its input "{value.name}" has {len(dims)} axes {dims}, expected pictures [N, 3, H, W]')
    layout = _layout(model, value.name, dims)
    height, width = dims[2:] if layout == "NCHW" else dims[1:3]
    size = (height, width) if height and width else None
    if size is not None and wanted is not None and wanted != size:
        raise ModelError(f"takes {size[0]} x {size[1]} pictures, asked for {wanted[0]} x {wanted[1]}", where="--size")
    return ForeignInput(value.name, elem, layout, size, batch)


def _layout(model: onnx.ModelProto, name: str, dims: list[int | None]) -> str:
    first, last = dims[1], dims[3]
    if first == 3 and last != 3:
        return "NCHW"
    if last == 3 and first != 3:
        return "NHWC"
    if first is None or first == 3:
        found = _first_taker(Graph(model), name)
        if found is not None:
            return found
    raise ModelError(
        f'its input "{name}" has the shape {[d or "?" for d in dims]}: pictures need three channels',
        fix="a network for grey pictures must repeat its channel inside: export it with a first layer that does",
    )


def _first_taker(graph: Graph, name: str) -> str | None:
    """The layout that the first convolution or transpose behind the input implies."""
    reached = {name}
    for node in graph.model.graph.node:
        moving = [i for i in node.input if i in reached]
        if not moving:
            continue
        if node.op_type == "Conv" and moving[0] == node.input[0] and graph.is_constant(node.input[1]):
            return "NCHW" if graph.constant(node.input[1]).shape[1] == 3 else None
        if node.op_type == "Transpose":
            perm = next((list(a.ints) for a in node.attribute if a.name == "perm"), [])
            return {(0, 3, 1, 2): "NHWC", (0, 2, 3, 1): "NCHW"}.get(tuple(perm))
        reached.update(node.output)
    return None


def add_prologue(model: onnx.ModelProto, taken: ForeignInput, declared: Declared, size: tuple[int, int]) -> None:
    """Puts the pixels' way in before the network: its input is `images`, uint8 [N, H, W, 3], from now on."""
    graph = model.graph
    if taken.rows:
        rows = helper.make_tensor_value_info("rows", TensorProto.FLOAT, [taken.batch or "N", taken.width])
        first = helper.make_node("Cast", ["rows"], [taken.name], name=f"{PREFIX}rows", to=taken.elem)
        _replace(graph, [first, *_copies(graph)], rows)
        return
    nodes: list[onnx.NodeProto] = []
    value, channels = "images", 3
    if taken.layout == "NCHW":
        value, channels = _put(nodes, "Transpose", value, perm=[0, 3, 1, 2]), 1
    shape = [1, 3, 1, 1] if channels == 1 else [1, 1, 1, 3]
    if taken.scaled_inside:
        value = _flip(graph, nodes, value, channels) if declared.bgr else value
    else:
        value = _put(nodes, "Cast", value, to=TensorProto.FLOAT)
        value = _flip(graph, nodes, value, channels) if declared.bgr else value
        mean, std = (np.asarray(v, np.float64) for v in (declared.preprocessing.mean, declared.preprocessing.std))
        order = slice(None, None, -1) if declared.bgr else slice(None)
        mul, add = (1 / (255 * std)).astype(np.float32)[order], (-mean / std).astype(np.float32)[order]
        if np.any(mul != 1):
            value = _put(nodes, "Mul", value, _constant(graph, "scale", mul.reshape(shape)))
        if np.any(add != 0):
            value = _put(nodes, "Add", value, _constant(graph, "shift", add.reshape(shape)))
        if taken.elem != TensorProto.FLOAT:
            value = _put(nodes, "Cast", value, to=taken.elem)
    if value == "images":
        value = _put(nodes, "Identity", value)
    nodes[-1].output[0] = taken.name
    images = helper.make_tensor_value_info("images", TensorProto.UINT8, [taken.batch or "N", *size, 3])
    _replace(graph, [*nodes, *_copies(graph)], images)


def _copies(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    return [onnx.NodeProto.FromString(n.SerializeToString()) for n in graph.node]


def _replace(graph: onnx.GraphProto, nodes: list[onnx.NodeProto], taken: onnx.ValueInfoProto) -> None:
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.input[:]
    graph.input.append(taken)


def _put(nodes: list[onnx.NodeProto], op: str, *inputs: str, **attributes: Any) -> str:
    name = f"{PREFIX}{len(nodes)}_{op.lower()}"
    nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
    return name


def _flip(graph: onnx.GraphProto, nodes: list[onnx.NodeProto], value: str, axis: int) -> str:
    order = _constant(graph, "bgr", np.asarray([2, 1, 0], np.int64))
    return _put(nodes, "Gather", value, order, axis=axis)


def _constant(graph: onnx.GraphProto, name: str, values: NDArray[Any]) -> str:
    graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(values), PREFIX + name))
    return PREFIX + name
