"""How a foreign graph ends: the activation behind its logits, found by walking back from the outputs.

Softmax, log-softmax and sigmoid under their own names and as they are written out by hand; behind them casts, shape
operators and quantization; labels and top-k, which are walked through to the scores that they choose from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from calibrant.calibration.softmax import log_sum_exp
from calibrant.errors import ModelError
from calibrant.export.graph.head import FLOATS, Graph

SAME_VALUES = {
    "Identity", "Dropout", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Clip", "Round", "QuantizeLinear",
    "DequantizeLinear",
}  # fmt: skip
SHAPES = {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"}
CHOICES = {"ArgMax", "TopK", "ReduceMax", "Max"}
RANK = {"logits": 0, "log-probabilities": 1, "probabilities": 2, "percent": 3, "sigmoid": 4}
CLOSE = 1e-3  # of sums and logarithms, in whatever precision


@dataclass(frozen=True)
class Ending:
    """What an output holds, and the value of the graph that holds the logits."""

    kind: str  # of RANK
    logits: str
    behind: tuple[str, ...] = ()  # operators between the logits and the output, first to last
    chosen: bool = False  # the output is a label or the best few, not one value a class
    known: bool = True  # made by an operator that says what it is

    @property
    def said(self) -> str:
        return " -> ".join(self.behind) if self.behind else "nothing behind the logits"


# Operators whose result may well be logits: an output made by another one is taken for what its numbers say.
PLAIN = {
    "Gemm", "MatMul", "Conv", "Add", "Sub", "Mul", "Div", "Relu", "LeakyRelu", "BatchNormalization", "ReduceMean",
    "GlobalAveragePool", "AveragePool", "Concat", "FusedConv", "FusedMatMul", "FusedGemm", "LinearClassifier",
    "TreeEnsembleClassifier", "SVMClassifier", "Neg", "Einsum", "QGemm", "QLinearMatMul", "QLinearConv",
}  # fmt: skip


MIXING = SAME_VALUES | {"Add", "Sub", "Mul", "Div", "Concat", "Mean", "Sum", "ReduceMean", "Cast", "Slice", "Transpose"}


class Walk:
    """Walks back from outputs over values whose arrays (rows first) are known from a run."""

    def __init__(self, graph: Graph, arrays: Mapping[str, NDArray[Any]], opset: int) -> None:
        self.graph, self.arrays, self.opset = graph, arrays, opset

    def of(self, value: str) -> Ending:
        node = self.graph.producer.get(value)
        if node is None or value not in self.arrays:
            return Ending("logits", value, known=node is None or node.op_type in PLAIN)
        op = node.op_type
        first = node.input[0] if node.input else ""
        if op in SAME_VALUES or (op == "Cast" and self._floats(node)):
            return self._through(op, first, value)
        if op in CHOICES or (op == "Cast" and not self._floats(node)):
            return self._choice(op, first, value)
        if op == "Softmax" or op == "LogSoftmax":
            self._check_axis(node, first)
            return Ending("probabilities" if op == "Softmax" else "log-probabilities", first, (op,))
        if op == "Sigmoid":
            return Ending("sigmoid", first, (op,))
        written = self._written(node, value)
        return written or Ending("logits", value, known=op in PLAIN and not self._of_activations(value))

    def _through(self, op: str, first: str, value: str) -> Ending:
        inner = self.of(first)
        if inner.kind == "logits" and not inner.chosen:
            return Ending("logits", value, known=inner.known)
        return replace(inner, behind=(*inner.behind, op))

    def _choice(self, op: str, first: str, value: str) -> Ending:
        inner = self.of(first)
        return replace(inner, behind=(*inner.behind, op), chosen=True)

    def _written(self, node: onnx.NodeProto, value: str) -> Ending | None:
        """Activations in several operators. Numbers decide: rows that sum to one, logarithms whose sum is none."""
        op = node.op_type
        if op in ("Exp", "Log") and node.input[0] in self.arrays:
            inner = self.of(node.input[0])
            before, after = ("log-probabilities", "probabilities")[:: 1 if op == "Exp" else -1]
            return replace(inner, kind=after, behind=(*inner.behind, op)) if inner.kind == before else None
        if op == "Concat":
            return self._both_classes(node)
        if op not in ("Div", "Sub", "Mul") or any(i not in self.arrays and not self._fixed(i) for i in node.input):
            return None
        left, right = node.input
        if op == "Mul":
            moving, factor = (right, left) if self._fixed(left) else (left, right)
            inner = self.of(moving)
            return self._scaled(inner, self.graph.constant(factor), "Mul") if self._fixed(factor) else None
        if self._fixed(right):
            inner = self.of(left)
            return self._scaled(inner, 1 / self.graph.constant(right), "Div") if op == "Div" else None
        if not self._one_a_row(right) or self._one_a_row(left):
            return None
        z = _rows(self.arrays[value])
        if op == "Sub" and np.all(np.abs(log_sum_exp(z)) < CLOSE):
            return Ending("log-probabilities", left, ("Sub",))
        if op == "Div" and np.all(z >= 0) and np.all(np.abs(z.sum(1) - 1) < CLOSE):
            maker = self.graph.producer.get(left)
            if maker is not None and maker.op_type == "Exp":
                return Ending("probabilities", self._before_shift(maker.input[0]), ("Exp", "Div"))
        return None

    def _of_activations(self, value: str) -> bool:
        """Made of nothing but sigmoids or softmaxes: the mean of two views, heads of several labels side by side."""
        node = self.graph.producer.get(value)
        if node is None:
            return False
        moving = [i for i in node.input if i and not self._fixed(i)]
        return node.op_type in ("Sigmoid", "Softmax") or (
            node.op_type in MIXING and bool(moving) and all(map(self._of_activations, moving))
        )

    def _scaled(self, inner: Ending, factor: NDArray[Any], op: str) -> Ending | None:
        """Probabilities in percent, and back: rounding to decimals goes there and back."""
        for kind, other, by in (("probabilities", "percent", 100.0), ("percent", "probabilities", 0.01)):
            if inner.kind == kind and np.allclose(factor, by):
                return replace(inner, kind=other, behind=(*inner.behind, f"{op} {by if op == 'Mul' else 1 / by:g}"))
        return None

    def _both_classes(self, node: onnx.NodeProto) -> Ending | None:
        """[1 - s, s] of a sigmoid s: two classes, whose one logit is the second's."""
        if len(node.input) != 2:
            return None
        first, second = map(self._bare, node.input)
        inner, other = self.of(second), self.graph.producer.get(first)
        if inner.kind != "sigmoid" or other is None or other.op_type != "Sub" or self._bare(other.input[1]) != second:
            return None
        one = self._fixed(other.input[0]) and bool(np.all(self.graph.constant(other.input[0]) == 1))
        one = one and self._one_a_row(second)
        return replace(inner, kind="probabilities", behind=(*inner.behind, "Concat")) if one else None

    def _bare(self, value: str) -> str:
        """Before operators that change the shape alone."""
        node = self.graph.producer.get(value)
        while node is not None and node.op_type in SHAPES:
            value = node.input[0]
            node = self.graph.producer.get(value)
        return value

    def _before_shift(self, value: str) -> str:
        """z of z - max z."""
        node = self.graph.producer.get(value)
        if node is not None and node.op_type == "Sub" and self._one_a_row(node.input[1]) and not self._fixed(value):
            return str(node.input[0])
        return value

    def _one_a_row(self, value: str) -> bool:
        array = self.arrays.get(value)
        return array is not None and array.ndim > 0 and array.size == len(array)

    def _fixed(self, value: str) -> bool:
        return self.graph.is_constant(value)

    def _floats(self, node: onnx.NodeProto) -> bool:
        return any(a.name == "to" and (a.i in FLOATS) for a in node.attribute)

    def _check_axis(self, node: onnx.NodeProto, value: str) -> None:
        """Does it run over the classes of each row? Before opset 13 it flattens from its axis on."""
        array = self.arrays.get(value)
        if array is None:
            return
        old = self.opset < 13
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1 if old else -1)
        at = axis % array.ndim
        over = int(np.prod(array.shape[at:])) if old else array.shape[at]
        if at == 0 or over != array[0].size:
            raise ModelError(
                f"its {node.op_type} runs over axis {axis} of {list(array.shape)} (opset {self.opset}), which is not "
                "over the classes of each picture",
                fix="export the network again, with the activation over the class axis",
            )


def _rows(array: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(array, np.float64).reshape(len(array), -1)
