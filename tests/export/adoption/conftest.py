"""Small foreign networks, built node by node, so that each pattern of each exporter takes milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from calibrant.export.adoption.adopt import Adoption, adopt
from calibrant.export.adoption.pictures import random_pictures

NAMES = ("ash", "birch", "cedar", "elm", "fir")
SIZE = 16
WIDTH = 8


@dataclass
class Maker:
    """A graph under construction: convolution, ReLU, mean over places, and whatever a test puts behind."""

    half: bool = False
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, NDArray[Any]] = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3))

    def put(self, op: str, *inputs: str, output: str | None = None, domain: str = "", **attributes: Any) -> str:
        made = output or f"v{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(op, list(inputs), [made], name=f"n{len(self.nodes)}", domain=domain, **attributes)
        )
        return made

    def weight(self, values: Any, name: str | None = None, dtype: Any = None) -> str:
        key = name or f"w{len(self.weights)}"
        kind = dtype or (np.float16 if self.half else np.float32)
        self.weights[key] = np.asarray(values, kind)
        return key

    def body(self, x: str = "input", *, pool: bool = True) -> str:
        """[N, 8] features (or the map before the pool) that differ between pictures."""
        kernel = np.random.default_rng(3).normal(0, 0.5, (WIDTH, 3, 3, 3))
        x = self.put("Conv", x, self.weight(kernel), strides=[2, 2], pads=[1, 1, 1, 1])
        x = self.put("Relu", x)
        return self.put("Flatten", self.put("GlobalAveragePool", x), axis=1) if pool else x

    def head(self, x: str, classes: int = len(NAMES), *, output: str | None = None) -> str:
        w, b = spread(self.rng, classes)
        if self.half:  # whose rounding the differences of large terms would show
            w, b = 0.3 * w, 0.3 * b
        return self.put("Gemm", x, self.weight(w), self.weight(b), transB=1, output=output)


@cache
def _centre() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and spread of the body's features over the random pictures of an adoption, scaled 0..1."""
    maker = Maker()
    made = maker.body()
    graph = helper.make_graph(
        maker.nodes, "body", [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", 3, SIZE, SIZE])],
        [onnx.ValueInfoProto(name=made)], [numpy_helper.from_array(a, k) for k, a in maker.weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    run = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    pixels = random_pictures(64, (SIZE, SIZE)).astype(np.float32).transpose(0, 3, 1, 2) / 255
    features = run.run(None, {"input": pixels})[0].astype(np.float64)
    return features.mean(0), features.std(0)


def spread(rng: np.random.Generator, classes: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weight and bias of a classifier whose logits differ between those pictures, as a trained one's do."""
    mean, std = _centre()
    w = rng.normal(0, 0.7, (classes, WIDTH)) / std
    return w, rng.normal(0, 0.3, classes) - w @ mean


Ends = Callable[[Maker], str | Sequence[str]]


@dataclass(frozen=True)
class Foreigners:
    folder: Path

    def write(
        self, end: Ends, *, name: str = "foreign.onnx", opset: int = 17,
        shape: Sequence[int | str] = ("n", 3, SIZE, SIZE),
        elem: int = TensorProto.FLOAT, ir: int = 8, as_inputs: bool = False, half: bool = False,
        domains: Sequence[tuple[str, int]] = (), out_elem: int | None = None,
    ) -> Path:  # fmt: skip
        """`end` puts nodes on the maker and gives the names of the outputs."""
        maker = Maker(half=half)
        made = end(maker)
        names = [made] if isinstance(made, str) else list(made)
        tensors = [numpy_helper.from_array(a, k) for k, a in maker.weights.items()]
        inputs = [helper.make_tensor_value_info("input", elem, list(shape))]
        if as_inputs:
            inputs += [helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in tensors]
        outputs = [onnx.ValueInfoProto(name=n) for n in names]
        if out_elem is not None:
            outputs = [helper.make_tensor_value_info(n, out_elem, None) for n in names]
        graph = helper.make_graph(maker.nodes, "foreign", inputs, outputs, tensors)
        opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in domains)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=ir, producer_name="by hand")
        if not as_inputs and out_elem is None and not domains:
            model = typed(model)
        path = self.folder / name
        onnx.save(model, str(path))
        return path

    def adopt(self, path: Path, **options: Any) -> Adoption:
        return adopt(path, self.folder / "adopted.onnx", **{"classes": NAMES, **options})

    @property
    def adopted(self) -> Path:
        return self.folder / "adopted.onnx"


def typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """With the types of its outputs, as exporters write them."""
    inferred = onnx.shape_inference.infer_shapes(model)
    del model.graph.output[:]
    model.graph.output.extend(inferred.graph.output)
    return model


@pytest.fixture
def foreigners(tmp_path: Path) -> Foreigners:
    return Foreigners(tmp_path)
