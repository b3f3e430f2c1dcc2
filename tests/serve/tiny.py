"""Writes small ONNX classifiers with a calibrant block: mean colour of the picture, one Gemm, Softmax.

The head is folded as the exporter folds it: W' = W / T, b' = b / T - applied * log(train / target).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from calibrant.artifacts.model_card import KEY, InputSpec, ModelCard, Prior
from calibrant.images.preprocessing import Preprocessing

CLASSES = ("auk", "bittern", "crane", "dunlin")
TRAIN = (0.4, 0.3, 0.2, 0.1)
TEMPERATURE = 2.0
SIZE = 16
PREPROCESSING = Preprocessing(size=(SIZE, SIZE), resize=SIZE + 2, mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3))


def weights(classes: int = 4) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(7)
    return 2 * rng.normal(size=(classes, 3)), rng.normal(size=classes)


def card(**changes: Any) -> ModelCard:
    base = ModelCard(
        classes=CLASSES,
        preprocessing=PREPROCESSING,
        name="birds",
        calibrator={"method": "temperature", "parameters": {"temperature": TEMPERATURE}},
        prior=Prior(train=TRAIN, applied=1.0),
        conformal={a: {"kind": "lac", "threshold": t} for a, t in (("0.1", 0.7), ("0.05", 0.9))},
        abstain_below=0.3,
    )
    return replace(base, **changes)


def raw_logits(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """The network alone: normalise, mean over the picture, W m + b."""
    w, b = weights()
    x = (pixels / 255.0 - np.array(PREPROCESSING.mean)) / np.array(PREPROCESSING.std)
    return x.mean(axis=(1, 2)) @ w.T + b


def expected(
    pixels: NDArray[np.uint8],
    temperature: float = TEMPERATURE,
    strength: float = 1.0,
    target: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25),
) -> NDArray[np.float64]:
    """The one formula: softmax(z / T - a log(train / target))."""
    z = raw_logits(pixels) / temperature - strength * np.log(np.array(TRAIN) / np.array(target))
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def write(
    path: Path,
    block: ModelCard | None = None,
    *,
    with_card: bool = True,
    batch: int | str = "N",
    float_input: bool = False,
    gather_last: bool = False,
    runtime: bool = False,
    producer: str = "calibrant",
    features: bool = False,
) -> Path:
    """`gather_last` adds a Gather by the first pixel's red value, which fails on 255: a poisonous row.

    `runtime` adds the knobs as inputs with defaults (overridable initializers), as the exporter does.
    `features`: put out too, the three mean colours.
    """
    block = block or card()
    w, b = weights(len(block.classes))
    prior = block.prior
    shift = np.zeros(len(block.classes))
    if prior.applied and prior.train is not None:
        target = np.full(len(block.classes), 1 / len(block.classes)) if prior.target is None else np.array(prior.target)
        shift = prior.applied * np.log(np.array(prior.train) / target)
    t = TEMPERATURE if block.calibrator else 1.0
    folded_t, folded_shift = (1.0, 0 * shift) if runtime else (t, shift)
    mean, std = np.array(PREPROCESSING.mean), np.array(PREPROCESSING.std)
    constants = {
        "scale": (1 / (255 * std)).reshape(1, 3, 1, 1), "offset": (-mean / std).reshape(1, 3, 1, 1),
        "W": w / folded_t, "b": b / folded_t - folded_shift,
    }  # fmt: skip
    initializers = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in constants.items()]
    nodes = []
    if float_input:
        image = helper.make_tensor_value_info("images", TensorProto.FLOAT, [batch, 3, SIZE, SIZE])
        block = replace(block, input=InputSpec("images", "float32", "NCHW"))
        last = "images"
    else:
        image = helper.make_tensor_value_info("images", TensorProto.UINT8, [batch, SIZE, SIZE, 3])
        nodes += [
            helper.make_node("Transpose", ["images"], ["nchw"], perm=[0, 3, 1, 2]),
            helper.make_node("Cast", ["nchw"], ["cast"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["cast", "scale"], ["scaled"]),
            helper.make_node("Add", ["scaled", "offset"], ["normal"]),
        ]
        last = "normal"
    nodes += [
        helper.make_node("GlobalAveragePool", [last], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "W", "b"], ["gemm"], transB=1),
        *(_knobs(initializers, t, shift) if runtime else _poison(initializers, gather_last)),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
    ]
    if float_input:
        initializers = initializers[2:]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, len(block.classes)])
        for name in ("probabilities", "logits")
    ]
    if features:
        nodes.append(helper.make_node("Identity", ["flat"], ["features"]))
        outputs.append(helper.make_tensor_value_info("features", TensorProto.FLOAT, [batch, 3]))
    inputs = [image, *(_knob_inputs(len(block.classes)) if runtime else [])]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], producer_name=producer)
    model.ir_version = 8
    if with_card:
        entry = model.metadata_props.add()
        entry.key, entry.value = KEY, block.to_json()
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


def _knobs(initializers: list[Any], t: float, shift: NDArray[np.float64]) -> list[Any]:
    """logits = gemm / temperature - adjust_strength * log_prior_ratio"""
    defaults = {"temperature": [[t]], "adjust_strength": [[1.0]], "log_prior_ratio": [shift]}
    initializers += [numpy_helper.from_array(np.array(v, np.float32), k) for k, v in defaults.items()]
    return [
        helper.make_node("Div", ["gemm", "temperature"], ["calibrated"]),
        helper.make_node("Mul", ["adjust_strength", "log_prior_ratio"], ["term"]),
        helper.make_node("Sub", ["calibrated", "term"], ["logits"]),
    ]


def _knob_inputs(classes: int) -> list[Any]:
    widths = {"temperature": 1, "adjust_strength": 1, "log_prior_ratio": classes}
    return [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["K", w]) for n, w in widths.items()]


def _poison(initializers: list[Any], on: bool) -> list[Any]:
    if not on:
        return [helper.make_node("Identity", ["gemm"], ["logits"])]
    initializers += [
        numpy_helper.from_array(np.zeros((255, 1), np.float32), "table"),
        numpy_helper.from_array(np.array([0, 0, 0], np.int64), "from"),
        numpy_helper.from_array(np.array([1, 1, 1], np.int64), "to"),
        numpy_helper.from_array(np.array([1, 2, 3], np.int64), "axes"),
        numpy_helper.from_array(np.array([-1], np.int64), "flat_shape"),
    ]
    return [
        helper.make_node("Slice", ["images", "from", "to", "axes"], ["corner"]),
        helper.make_node("Reshape", ["corner", "flat_shape"], ["corner_flat"]),
        helper.make_node("Cast", ["corner_flat"], ["index"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "index"], ["zero"]),
        helper.make_node("Add", ["gemm", "zero"], ["logits"]),
    ]


def pictures(n: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 255, (n, SIZE, SIZE, 3)).astype(np.uint8)
