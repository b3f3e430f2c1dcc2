"""Steps of the tail as ONNX operators: affine maps, gauges, and calibrators that are functions of one probability.

A function g_k of a probability enters as  logits = log(max(g_k(p_k), 1e-12)): the softmax behind it is exactly the
renormalisation, no probability becomes 0, a row of zeros becomes uniform, and `logits` keeps its meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.onnx_file import OWN
from calibrant.artifacts.onnx_wire import Attribute, Node
from calibrant.calibration.calibrators.steps import (
    LEAST_SQUARE,
    Affine,
    BetaMap,
    DensityScale,
    Hinges,
    LogSoftmax,
    MixtureMap,
    PiecewiseConstant,
    PiecewiseLinear,
    Pool,
    ShapeScale,
    Step,
    SubtractMax,
)
from calibrant.calibration.softmax import FLOOR as EPS
from calibrant.calibration.softmax import LOWEST_LOG
from calibrant.errors import ModelError
from calibrant.export.graph.piecewise import Array, PiecewiseMap, in_float32

COMPARED = 32  # up to this many knots all are compared at once; above, a binary search is faster
INT32, FLOAT = 6, 1
FEATURES = "features"  # the value of the body that a step may read beside the logits

GraphStep = Step | PiecewiseMap


@dataclass
class Builder:
    """Nodes and initializers under our prefix, in the order of making."""

    nodes: list[Node] = field(default_factory=list)
    initializers: dict[str, NDArray[np.generic]] = field(default_factory=dict)

    def constant(self, name: str, values: Any, dtype: type[np.generic] = np.float32) -> str:
        """An initializer of ours, rounded to float32 here and nowhere before."""
        key = OWN + name
        self.initializers[key] = np.ascontiguousarray(np.asarray(values, dtype))
        return key

    def table(self, name: str, values: Any, dtype: type[np.generic] = np.float32) -> str:
        """A constant whose name is made unique by the number of nodes before it."""
        return self.constant(f"map{len(self.nodes)}.{name}", values, dtype)

    def node(self, op: str, *inputs: str, output: str | None = None, more: int = 0, **attributes: Attribute) -> str:
        """Gives the name of its first result; `more` results besides are for nobody."""
        name = f"{OWN}{len(self.nodes)}_{op}"
        value = output or name
        self.nodes.append(Node(op, inputs, (value, *(f"{name}.{i + 1}" for i in range(more))), name, attributes))
        return value

    def finish(self, value: str, name: str) -> bool:
        """Gives the last value its public name; a value of the body gets an alias. Was it renamed?"""
        last = self.nodes[-1] if self.nodes else None
        if last is None or last.outputs != (value,):
            self.node("Identity", value, output=name)
            return False
        self.nodes[-1] = Node(last.op, last.inputs, (name,), last.name, last.attributes)
        return True

    def axis(self, value: int) -> str:
        return self.constant(f"axis{value}", [value], np.int64)

    def rows(self, op: str, x: str) -> str:
        """A reduction over the classes that keeps the axis."""
        return self.node(op, x, self.axis(1), keepdims=1)


def emit(graph: Builder, step: GraphStep, x: str) -> str:
    """Writes the step on logits `x` and gives the name of its result."""
    if isinstance(step, Affine):
        return emit_affine(graph, step, x)
    if isinstance(step, SubtractMax):
        return graph.node("Sub", x, graph.rows("ReduceMax", x))
    if isinstance(step, LogSoftmax):
        return graph.node("LogSoftmax", x, axis=-1)
    if isinstance(step, PiecewiseLinear | PiecewiseConstant):
        step = in_float32(step)
    if isinstance(step, PiecewiseMap):
        return _logarithm(graph, _piecewise(graph, step, graph.node("Softmax", x, axis=-1)))
    if isinstance(step, BetaMap):
        return _beta(graph, step, x)
    if isinstance(step, MixtureMap):
        return _mixture(graph, step, x)
    if isinstance(step, Hinges):
        return _hinges(graph, step, x)
    if isinstance(step, ShapeScale):
        return _shape_scale(graph, step, x)
    if isinstance(step, DensityScale):
        return _density_scale(graph, step, x)
    if isinstance(step, Pool):
        return _pool(graph, step, x)
    raise ModelError(f"no graph for {type(step).__name__}")


def emit_affine(graph: Builder, step: Affine, x: str) -> str:
    if not step.diagonal:
        return graph.node("Gemm", x, graph.table("weight", step.a), graph.table("bias", step.c), transB=1)
    if np.any(step.a != 1):
        x = graph.node("Mul", x, graph.table("scale", step.a))
    if np.any(step.c != 0):
        x = graph.node("Add", x, graph.table("shift", step.c))
    return x


def _logarithm(graph: Builder, q: str) -> str:
    return graph.node("Log", graph.node("Max", q, graph.constant("eps", [EPS])))


def _piecewise(graph: Builder, step: PiecewiseMap, p: str) -> str:
    """g_k(p_k): finds the segment, then reads its value or its line from a table."""
    classes, count = step.knots.shape
    if count <= COMPARED:
        width, index = count + 1, _count_all(graph, step.knots, p)
    else:
        levels = int(np.ceil(np.log2(count + 1)))
        width = 1 << levels
        knots = np.full((classes, width), 2.0)  # which no probability reaches
        knots[:, :count] = step.knots
        index = _count_by_search(graph, knots, p, levels)
    base = graph.table("base", np.arange(classes)[None] * width, np.int32)
    index = graph.node("Add", index, base)

    def read(name: str, values: Array) -> str:
        # segments behind padding repeat the last one: nothing reaches them
        padded = np.pad(values, ((0, 0), (0, width - values.shape[1])), mode="edge")
        return graph.node("Gather", graph.table(name, padded.ravel()), index, axis=0)

    start = read("start", step.start)
    if step.slope is None or step.origin is None:
        return start
    # p - origin is small, so the product keeps its digits; a sum of hinges from p = 0 would lose them
    run = graph.node("Sub", p, read("origin", step.origin))
    return graph.node("Add", start, graph.node("Mul", read("slope", step.slope), run))


def _count_all(graph: Builder, knots: Array, p: str) -> str:
    """Number of knots <= p, by comparing with every one."""
    column = graph.node("Unsqueeze", p, graph.axis(2))
    above = graph.node("GreaterOrEqual", column, graph.table("knots", knots))
    return graph.node("ReduceSum", graph.node("Cast", above, to=INT32), graph.axis(2), keepdims=0)


def _count_by_search(graph: Builder, knots: Array, p: str, levels: int) -> str:
    """The same by binary search: each level adds half of what is left where the knot in the middle is <= p."""
    classes, width = knots.shape
    half = width // 2
    above = graph.node("GreaterOrEqual", p, graph.table("middle", knots[:, half - 1]))
    found = graph.node("Mul", graph.node("Cast", above, to=INT32), graph.constant(f"half{half}", [half], np.int32))
    flat = graph.table("knots", knots.ravel())
    while (half := half // 2) >= 1:
        offset = graph.constant(f"middle{half}", np.arange(classes)[None] * width + half - 1, np.int32)
        middle = graph.node("Gather", flat, graph.node("Add", found, offset), axis=0)
        above = graph.node("Cast", graph.node("GreaterOrEqual", p, middle), to=INT32)
        more = graph.node("Mul", above, graph.constant(f"half{half}", [half], np.int32)) if half > 1 else above
        found = graph.node("Add", found, more)
    return found


def _beta(graph: Builder, step: BetaMap, x: str) -> str:
    """log q = -softplus(-(a log p - b log(1 - p) + c)).

    1 - p_k = (s - e_k) / s with e = exp(x - max x) loses all digits for the winner, so there the others are added up.
    """
    top = graph.rows("ReduceMax", x)
    gap = graph.node("Sub", x, top)
    e = graph.node("Exp", gap)
    total = graph.rows("ReduceSum", e)
    log_total = graph.node("Log", total)
    zero, one = graph.constant("zero", [0.0]), graph.constant("one1", [1.0])
    wins = graph.node("Equal", x, top)
    others = graph.rows("ReduceSum", graph.node("Where", wins, zero, e))
    ties = graph.node("Sub", graph.rows("ReduceSum", graph.node("Cast", wins, to=FLOAT)), one)
    rest = graph.node("Where", wins, graph.node("Add", others, ties), graph.node("Sub", total, e))
    # inputs are cut at float64's spacing at 1, as they were when the map was fitted
    tiny, floor = graph.constant("tiny", [1e-37]), graph.constant("lowest", [LOWEST_LOG])
    log_p = graph.node("Max", graph.node("Sub", gap, log_total), floor)
    log_rest = graph.node("Sub", graph.node("Log", graph.node("Max", rest, tiny)), log_total)
    log_rest = graph.node("Max", log_rest, floor)
    left = graph.node("Mul", log_p, graph.table("a", step.a))
    right = graph.node("Mul", log_rest, graph.table("b", step.b))
    u = graph.node("Add", graph.node("Sub", left, right), graph.table("c", step.c))
    log_q = graph.node("Neg", graph.node("Softplus", graph.node("Neg", u)))
    return graph.node("Max", log_q, graph.constant("log_eps", [np.log(EPS)]))


def _mixture(graph: Builder, step: MixtureMap, x: str) -> str:
    """log( sum_j w_j softmax(x / T_j) + rest )."""
    q = graph.constant("mixture.rest", [step.rest])
    for temperature, weight in zip(step.temperatures, step.weights, strict=True):
        scaled = x if temperature == 1 else graph.node("Mul", x, graph.table("inverse", [1.0 / temperature]))
        p = graph.node("Softmax", scaled, axis=-1)
        q = graph.node("Add", graph.node("Mul", p, graph.table("weight", [weight])), q)
    return _logarithm(graph, q)


def _hinges(graph: Builder, step: Hinges, u: str) -> str:
    zero = graph.constant("zero", [0.0])
    out = graph.node("Mul", u, graph.table("slope", [step.slope]))
    for knot, bend in zip(step.knots, step.bends, strict=True):
        if bend:
            below = graph.node("Min", graph.node("Sub", u, graph.table("knot", [knot])), zero)
            out = graph.node("Add", out, graph.node("Mul", below, graph.table("bend", [bend])))
    return out


def _shape_scale(graph: Builder, step: ShapeScale, u: str) -> str:
    down = graph.rows("ReduceSum", graph.node("Mul", graph.node("Exp", u), u))  # minus the entropy
    s = graph.node("Mul", down, graph.table("entropy", [-step.entropy]))
    s = graph.node("Add", s, graph.node("Mul", graph.rows("ReduceMax", u), graph.table("top", [step.top])))
    s = graph.node("Tanh", graph.node("Add", s, graph.table("bias", [step.bias])))
    return graph.node("Mul", u, graph.node("Exp", s))


def _density_scale(graph: Builder, step: DensityScale, u: str) -> str:
    """Reads the body's `features`; 1 / (length of a feature vector) comes last, so that one matrix product does all."""
    x = graph.node("Sub", FEATURES, graph.table("mean", step.mean))
    x = graph.node("Mul", x, graph.table("scale", 1.0 / step.spread))
    square = graph.node("Max", graph.rows("ReduceSumSquare", x), graph.table("least", [LEAST_SQUARE]))
    along = graph.node("MatMul", x, graph.table("centres", step.centres.T))
    nearest = graph.table("nearest", [step.nearest], np.int64)
    top = graph.rows("ReduceMean", graph.node("TopK", along, nearest, more=1, axis=-1, largest=1, sorted=1))
    distance = graph.node("Sub", graph.constant("one1", [1.0]), graph.node("Div", top, graph.node("Sqrt", square)))
    away = graph.node("Sub", distance, graph.table("middle", [step.middle]))
    bend = graph.node("Softplus", graph.node("Mul", away, graph.table("slope", [step.slope])))
    return graph.node("Mul", u, graph.node("Div", graph.table("log2", [np.log(2.0)]), bend))


def _pool(graph: Builder, step: Pool, x: str) -> str:
    """log( sum_j w_j softmax(branch_j(x)) + rest ); steps with which several branches begin are written once."""
    written: dict[tuple[str, str], str] = {}
    q = ""
    for branch, weight in zip(step.branches, step.weights, strict=True):
        value = x
        for part in branch:
            key = (value, _fingerprint(part))
            if key not in written:
                written[key] = emit(graph, part, value)
            value = written[key]
        share = graph.node("Mul", graph.node("Softmax", value, axis=-1), graph.table("weight", [weight]))
        q = graph.node("Add", q, share) if q else share
    if step.rest:
        q = graph.node("Add", q, graph.table("rest", [step.rest]))
    return _logarithm(graph, q)


def _fingerprint(step: Step) -> str:
    """Equal for steps that compute the same."""
    parts = [type(step).__name__]
    for value in vars(step).values():
        arrays = value if isinstance(value, (list, tuple)) else [value]
        parts += [a.tobytes().hex() if isinstance(a, np.ndarray) else repr(a) for a in arrays]
    return "|".join(parts)
