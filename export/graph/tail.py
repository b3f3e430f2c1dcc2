"""The part of the deployed graph behind the features, written from scratch at export and again at every edit.

Everything here is named under "calibrant/", so an edit takes the old tail out and puts the new one in, with the wire
format alone: recalibrating from a temperature to isotonic regression needs neither torch nor the onnx package.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np

from calibrant.artifacts import onnx_wire as wire
from calibrant.artifacts.onnx_file import KNOBS, OWN
from calibrant.artifacts.onnx_rewrite import GraphEdit
from calibrant.artifacts.onnx_wire import Value
from calibrant.calibration.calibrators.steps import Affine, DensityScale
from calibrant.errors import ConfigError, ModelError, did_you_mean
from calibrant.export.graph.blocks import Builder, GraphStep, emit, emit_affine
from calibrant.export.graph.fold import Array, stored

OUTPUTS = ("probabilities", "logits", "features", "ood_score")
OOD_KINDS = ("energy", "max-softmax", "feature-norm")
KNOB_MODES = ("baked", "runtime", "required")
FLOAT = 1
LEAST = 1e-3  # a scale of the logits that float32 still undoes well enough for an energy


@dataclass(frozen=True)
class Knobs:
    """Defaults of the runtime inputs: logits / temperature - adjust_strength * log_prior_ratio."""

    temperature: float
    adjust_strength: float
    log_prior_ratio: Array
    required: bool = False  # ordinary inputs without defaults, as Triton's batching and OpenVINO want them


@dataclass(frozen=True)
class Ood:
    """Out-of-distribution score, larger is more unusual; mu and sd are of the L1 norm of training features."""

    kind: str
    mu: float = 0.0
    sd: float = 1.0


@dataclass(frozen=True)
class Tail:
    """All that decides the tail of the graph."""

    classes: int
    source: str  # the value that the tail starts from: features or logits
    weight: Array | None  # (C, D) of the raw classifier, None where the tail starts from logits
    bias: Array | None
    steps: Sequence[GraphStep]
    outputs: Sequence[str] = ("probabilities", "logits")
    feature_dim: int | None = None
    knobs: Knobs | None = None
    ood: Ood | None = None
    batch: int | str = "N"  # a number where the network runs at no other
    independent: bool = False  # each label has a probability of its own

    def edit(self, inputs: Sequence[Value]) -> GraphEdit:
        """Nodes, initializers, inputs and outputs; `inputs` are those of the body."""
        self._check()
        graph = Builder()
        current, rest, first, raw = self._head(graph)
        for step in rest:
            current = emit(graph, step, current)
        if self.knobs is not None:
            current = _knobs(graph, self.knobs, current)
        renamed = graph.finish(current, "logits")
        raw = "logits" if renamed and raw == current else raw
        if "probabilities" in self.outputs or (self.ood is not None and self.ood.kind == "max-softmax"):
            if self.independent:
                graph.node("Sigmoid", "logits", output="probabilities")
            else:
                graph.node("Softmax", "logits", output="probabilities", axis=-1)
        if "ood_score" in self.outputs and self.ood is not None:
            _ood(graph, self.ood, raw, first)
        free = [v for v in inputs if v.name not in KNOBS]
        declared = self._knob_inputs() if self.knobs is not None else []
        return GraphEdit(graph.nodes, graph.initializers, [*free, *declared], self._output_values(), frozenset(KNOBS))

    def _check(self) -> None:
        if "features" in self.outputs and self.feature_dim is None:
            raise ModelError("this model has no feature vector to put out", fix="leave `features` out of the outputs")
        if self.ood is not None and self.ood.kind == "feature-norm" and self.feature_dim is None:
            raise ModelError("a feature-norm score needs a model that gives features", fix="use energy")
        if self.density is not None and self.feature_dim != len(self.density.mean):
            held = "gives none" if self.feature_dim is None else f"gives {self.feature_dim}"
            raise ModelError(
                f"the calibrator reads {len(self.density.mean)} features a row, this model {held}",
                fix="fit it on this model's own predictions, made with calibrant predict --features",
            )

    def _head(self, graph: Builder) -> tuple[str, list[GraphStep], Affine, str]:
        """Emits the classifier; gives the current value, the steps left, and how to find the raw logits again."""
        rest = list(self.steps)
        fold = self.folded()
        if self.weight is None or self.bias is None:
            return self.source, rest, fold, self.source
        if not fold.identity:
            rest.pop(0)
        weight, bias = stored(fold, self.weight, self.bias)
        graph.constant("head.weight", weight)
        graph.constant("head.bias", bias)
        name = graph.node("Gemm", self.source, OWN + "head.weight", OWN + "head.bias", transB=1)
        return name, rest, fold, name

    def folded(self) -> Affine:
        """What goes into the classifier's own weights: the first step, where it is affine.

        A matrix, or a scale near 0, stays out where the energy score needs the raw logits, since it cannot be undone
        in the graph.
        """
        first = self.steps[0] if self.steps and self.weight is not None else None
        if isinstance(first, Affine) and (not self._energy or (first.diagonal and np.abs(first.a).min() > LEAST)):
            return first
        return Affine(np.ones(self.classes), np.zeros(self.classes))

    @property
    def density(self) -> DensityScale | None:
        """The step that reads features, where there is one."""
        return next((s for s in self.steps if isinstance(s, DensityScale)), None)

    @property
    def _energy(self) -> bool:
        return self.ood is not None and self.ood.kind == "energy" and "ood_score" in self.outputs

    def _knob_inputs(self) -> list[Value]:
        # The name of the first dimension is free: rows are 1 or N, which a declared 1 would not allow.
        rows = self.batch if self.knobs is not None and self.knobs.required else "rows"
        return [
            Value("temperature", FLOAT, (rows, 1)),
            Value("adjust_strength", FLOAT, (rows, 1)),
            Value("log_prior_ratio", FLOAT, (rows, self.classes)),
        ]

    def _output_values(self) -> list[Value]:
        width = {"probabilities": self.classes, "logits": self.classes, "features": self.feature_dim, "ood_score": 1}
        return [Value(name, FLOAT, (self.batch, width[name] or 0)) for name in OUTPUTS if name in self.outputs]


def check_choices(outputs: Sequence[str], ood: Mapping[str, Any] | None, knobs: str) -> None:
    """Refuses unknown names before any work is done."""
    for name in outputs:
        if name not in OUTPUTS:
            raise ConfigError(f'unknown output "{name}"', fix=did_you_mean(name, OUTPUTS))
        if list(outputs).count(name) > 1:
            raise ConfigError(f'the output "{name}" is named twice')
    if "logits" not in outputs:
        raise ConfigError("outputs must contain logits", fix="add logits; every editor and check reads them")
    if "ood_score" in outputs and ood is None:
        raise ConfigError("an ood_score output needs a kind", fix=f"one of {', '.join(OOD_KINDS)}")
    if ood is not None and ood.get("kind") not in OOD_KINDS:
        raise ConfigError(f'unknown OOD score "{ood.get("kind")}"', fix=did_you_mean(str(ood.get("kind")), OOD_KINDS))
    if ood is not None and ood["kind"] == "feature-norm":
        mu, sd = (ood.get(key) for key in ("mu", "sd"))
        if not _number(mu) or not _number(sd) or sd < 0:
            raise ConfigError(
                f"a feature-norm score needs the mean and spread of training norms, got mu {mu}, sd {sd}",
                fix='give {"kind": "feature-norm", "mu": ..., "sd": ...}',
            )
    if knobs not in KNOB_MODES:
        raise ConfigError(f'unknown knobs "{knobs}"', fix=did_you_mean(knobs, KNOB_MODES))


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _knobs(graph: Builder, knobs: Knobs, x: str) -> str:
    """x / temperature - adjust_strength * log_prior_ratio.

    Knobs with more rows than images would broadcast one image to several answers without a word; reshaping to the
    shape before turns that into an error.
    """
    if not knobs.required:
        graph.initializers["temperature"] = np.full((1, 1), knobs.temperature, np.float32)
        graph.initializers["adjust_strength"] = np.full((1, 1), knobs.adjust_strength, np.float32)
        graph.initializers["log_prior_ratio"] = np.asarray(knobs.log_prior_ratio, np.float32).reshape(1, -1)
    scaled = graph.node("Div", x, "temperature")
    moved = graph.node("Sub", scaled, graph.node("Mul", "adjust_strength", "log_prior_ratio"))
    return graph.node("Reshape", moved, graph.node("Shape", x))


def _ood(graph: Builder, ood: Ood, raw: str, fold: Affine) -> None:
    if ood.kind == "max-softmax":
        top = graph.node("ReduceMax", "probabilities", graph.axis(1), keepdims=1)
        graph.node("Sub", graph.constant("one", [[1.0]]), top, output="ood_score")
    elif ood.kind == "feature-norm":
        norm = graph.node("ReduceL1", "features", graph.axis(1), keepdims=1)
        gap = graph.node("Sub", graph.constant("norm.mean", [[ood.mu]]), norm)
        graph.node("Mul", gap, graph.constant("norm.scale", [[1.0 / (ood.sd + 1e-3)]]), output="ood_score")
    else:  # energy of the network's own logits, so what was folded comes off again
        if not fold.identity:
            raw = emit_affine(graph, Affine(1.0 / fold.a, -fold.c / fold.a), raw)
        total = graph.node("ReduceLogSumExp", raw, graph.axis(1), keepdims=1)
        graph.node("Neg", total, output="ood_score")


def tail_reads(tail: Tail) -> set[str]:
    """The values of the body that the tail needs."""
    needed = {tail.source}
    of_score = tail.ood is not None and tail.ood.kind == "feature-norm"
    if "features" in tail.outputs or of_score or tail.density is not None:
        needed.add("features")
    return needed


def standalone(tail: Tail, *, opset: int = 18) -> bytes:
    """The tail alone as an ONNX model, to be tried on features that did not come from images."""
    width = tail.weight.shape[1] if tail.weight is not None else tail.classes
    inputs = [Value(tail.source, FLOAT, (tail.batch, width))]
    if "features" in tail_reads(tail) - {tail.source}:
        inputs.append(Value("features", FLOAT, (tail.batch, tail.feature_dim or 0)))
    edit = replace(tail, outputs=[o for o in tail.outputs if o != "features"]).edit(inputs)
    graph = [wire.blob(1, node.encode()) for node in edit.nodes]
    graph += [wire.blob(2, "tail")]
    for name, array in edit.initializers.items():
        tensor = wire.encode_tensor(name, array)
        graph += [wire.header(5, len(tensor)), tensor]
    graph += [wire.blob(11, value.encode()) for value in edit.inputs or ()]
    graph += [wire.blob(12, value.encode()) for value in edit.outputs or ()]
    head = [wire.integer(1, 8), wire.header(7, sum(map(len, graph)))]
    return b"".join([*head, *graph, wire.blob(8, wire.integer(2, opset))])
