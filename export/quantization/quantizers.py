"""Three ways to make the body of a deployed graph smaller: static int8 (QDQ), dynamic int8, and half precision.

The tail, from the classifier on, is never touched: the quantizer's default would turn the probabilities into some
hundred distinct values that do not sum to one, and a float classifier can be folded and edited as before.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray

from calibrant.errors import ModelError
from calibrant.export.graph.head import Graph
from calibrant.export.graph.trace import SCOPES
from calibrant.export.quantization.rounding import rounded_weights, with_weights

Ranges = Literal["minmax", "percentile", "entropy"]
BATCH = 8
_WEIGHTED = ("Conv", "MatMul", "Gemm", "ConvTranspose")


@dataclass(frozen=True)
class BlockGraph:
    """The graph up to the classifier, and how its nodes group into blocks of the network."""

    model: onnx.ModelProto
    blocks: dict[str, tuple[str, ...]]  # block: names of its nodes, in the order of the graph
    prologue: tuple[str, ...]  # nodes that turn bytes into normalised pixels: always float

    @classmethod
    def of(cls, model: onnx.ModelProto) -> BlockGraph:
        _name_nodes(model)
        first = next((i for i, n in enumerate(model.graph.node) if n.op_type in _WEIGHTED), 0)
        blocks: dict[str, list[str]] = {}
        last = "stem"
        for node in model.graph.node[first:]:
            last = block_of(node) or last
            blocks.setdefault(last, []).append(node.name)
        weighted = {n.name for n in model.graph.node if n.op_type in _WEIGHTED}
        kept = {name: tuple(nodes) for name, nodes in blocks.items() if weighted.intersection(nodes)}
        return cls(model, kept, tuple(n.name for n in model.graph.node[:first]))

    @property
    def transformer(self) -> bool:
        """More matrix products than convolutions: its activations want their ranges measured per call."""
        ops = [n.op_type for n in self.model.graph.node]
        return ops.count("MatMul") + ops.count("Gemm") > ops.count("Conv")

    @property
    def slow_activation(self) -> str | None:
        """An activation that has no int8 kernel, so that every layer goes through float and back."""
        ops = {n.op_type for n in self.model.graph.node}
        names = {"HardSwish": "HardSwish", "HardSigmoid": "HardSwish", "Sigmoid": "SiLU", "Erf": "GELU"}
        return next((name for op, name in names.items() if op in ops), None)


def block_of(node: onnx.NodeProto) -> str | None:
    """`blocks.0.1` from the module path of a node: up to its last number, or without its last name.

    A foreign file has no such path; torchscript's exporter puts one into the node's name.
    """
    scopes = next((p.value for p in node.metadata_props if p.key == SCOPES), None)
    if scopes is None:
        return _block_of_name(node.name)
    path = [s.strip(" '\"") for s in scopes.strip("[]").split(",")]
    parts = [p for p in path[-2].split(".") if p] if len(path) > 1 else []
    while parts and parts[0] == "network":
        parts = parts[1:]
    if not parts:
        return None
    numbered = [i for i, part in enumerate(parts) if part.isdigit() and "downsample" not in parts[:i]]
    return ".".join(parts[: numbered[-1] + 1] if numbered else parts[:-1] or parts)


def _block_of_name(name: str) -> str | None:
    """/layer1/layer1.0/conv1/Conv is of layer1.0. Names further down (conv/conv.0) are those of every block."""
    places = name.split("/")[1:-1] if name.startswith("/") else []
    for start in range(len(places) - 1):
        end = start
        while end + 1 < len(places) and places[end + 1].startswith(f"{places[end]}."):
            end += 1
        if end > start:
            return places[end]
    return ".".join(places[:-1] or places) or None


class StaticQuantizer:
    """Measures activation ranges and rounds weights once, then writes any number of files that differ in what stays
    float."""

    def __init__(
        self, body: BlockGraph, images: NDArray[Any], ranges: Ranges = "minmax", folder: Path | None = None
    ) -> None:
        from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, create_calibrator

        class Reader(CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.starts = iter(range(0, len(images), BATCH))

            def get_next(self) -> dict[str, Any] | None:
                start = next(self.starts, None)
                return None if start is None else {"images": np.asarray(images[start : start + BATCH])}

        self.body, self.model = body, with_shapes(body.model)
        method = {
            "minmax": CalibrationMethod.MinMax,
            "percentile": CalibrationMethod.Percentile,
            "entropy": CalibrationMethod.Entropy,
        }[ranges]
        # Without more bins than levels, entropy calibration has nothing to choose and equals min-max.
        options = {"minmax": {}, "percentile": {"percentile": 99.99}, "entropy": {"num_bins": 2048}}[ranges]
        with tempfile.TemporaryDirectory(dir=folder) as scratch, quiet():
            source = Path(scratch) / "body.onnx"
            onnx.save(self.model, str(source))
            calibrator = create_calibrator(
                source,
                self._operators(),
                augmented_model_path=str(Path(scratch) / "augmented.onnx"),
                calibrate_method=method,
                extra_options=options,
            )
            calibrator.collect_data(Reader())
            self.ranges = calibrator.compute_data()
        self.weights = rounded_weights(self.model, images)

    def _operators(self) -> list[str]:
        from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

        return sorted(set(QLinearOpsRegistry) | set(QDQRegistry))

    def write(
        self, path: Path, *, float_blocks: Collection[str] = (), per_channel: bool = True, nearest: bool = False
    ) -> None:
        """The body with int8 weights and uint8 activations; the named blocks stay float.

        Scales of single channels come with weights rounded for the output (rounding.py) unless `nearest`.
        """
        from onnxruntime.quantization import QDQQuantizer, QuantType

        excluded = [*self.body.prologue, *(n for b in float_blocks for n in self.body.blocks[b])]
        compensated = per_channel and not nearest
        weights = {name: w for name, w in self.weights.items() if compensated and name not in excluded}
        with quiet():
            quantizer = QDQQuantizer(
                with_weights(self.model, weights),
                per_channel,
                False,
                QuantType.QInt8,
                QuantType.QUInt8,
                self.ranges,
                [],
                excluded,
                self._operators(),
                {},
            )
            quantizer.quantize_model()
            quantizer.model.save_model_to_file(str(path), False)


def write_dynamic(body: BlockGraph, path: Path) -> None:
    """int8 weights per channel in every matrix product; activations are measured at each call."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with quiet():
        quantize_dynamic(
            with_shapes(body.model),
            str(path),
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            weight_type=QuantType.QInt8,
        )


def write_half(body: BlockGraph, path: Path) -> None:
    """Half precision inside, float32 at both ends; for GPUs, on a CPU it is slower."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with quiet():
        half = convert_float_to_float16(with_shapes(body.model), keep_io_types=True, node_block_list=[*body.prologue])
        onnx.save(half, str(path))


def with_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with shapes inferred afresh: the quantizers take the exporter's for conflicts."""
    fresh = copy.deepcopy(model)
    del fresh.graph.value_info[:]
    inferred: onnx.ModelProto = onnx.shape_inference.infer_shapes(fresh)
    return inferred


def _name_nodes(model: onnx.ModelProto) -> None:
    """Exclusion goes by name, so every node needs one of its own."""
    seen: set[str] = set()
    for i, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:
            node.name = f"node_{i}_{node.op_type}"
        seen.add(node.name)


def check_quantizable(model: onnx.ModelProto) -> None:
    if any(n.op_type in ("QuantizeLinear", "DynamicQuantizeLinear") for n in model.graph.node):
        raise ModelError("the file is quantized already", fix="quantize the float file")
    graph = Graph(model)
    if not any(n.op_type in _WEIGHTED and graph.is_constant(n.input[1]) for n in model.graph.node):
        raise ModelError("the file has no convolution or matrix product with constant weights")


def require_int8(path: Path, why: str) -> None:
    """The quantizers leave what they cannot quantize as it was, and say nothing."""
    if not any("QuantizeLinear" in node.op_type for node in onnx.load(str(path)).graph.node):
        raise ModelError(f"nothing of it was quantized; {why}")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """onnxruntime's quantizer logs advice to the root logger."""
    root = logging.getLogger()
    level = root.level
    try:
        root.setLevel(logging.ERROR)
        yield
    finally:
        root.setLevel(level)
