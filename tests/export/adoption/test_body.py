"""The classifier of every pattern becomes one matrix; where none can stand for it, the tail starts from the logits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from .conftest import NAMES, WIDTH, Foreigners, Maker, spread


def batch_norm(m: Maker, x: str, width: int) -> str:
    """(x - mean) sqrt(var + eps) / sqrt(var + eps) + mean: constants of all kinds, and the same values."""
    mean, variance, epsilon = m.rng.normal(1, 0.2, width), m.rng.uniform(0.5, 2, width), 1e-3
    values = (np.sqrt(variance + epsilon), mean, mean, variance)
    return m.put("BatchNormalization", x, *(m.weight(v) for v in values), epsilon=epsilon)


def conv_head(m: Maker, x: str) -> str:
    w, b = spread(m.rng, len(NAMES))
    return m.put("Conv", x, m.weight(w[:, :, None, None]), m.weight(b))


def matmul_add(m: Maker) -> str:
    w, b = spread(m.rng, len(NAMES))
    return m.put("Add", m.put("MatMul", m.body(), m.weight(w.T)), m.weight(b))


def no_bias(m: Maker) -> str:
    return m.put("MatMul", m.body(), m.weight(spread(m.rng, len(NAMES))[0].T))


def norm_before(m: Maker) -> str:
    return m.head(batch_norm(m, m.body(), WIDTH))


def norm_after(m: Maker) -> str:
    return batch_norm(m, m.head(m.body()), len(NAMES))


def two_norms(m: Maker) -> str:
    """LeViT, RepViT: Div(Add(Gemm(BN1 x), Gemm(BN2 x)), 2)."""
    f = m.body()
    both = m.put("Add", m.head(batch_norm(m, f, WIDTH)), m.head(batch_norm(m, f, WIDTH)))
    return m.put("Div", both, m.weight(2.0))


def conv_before_pool(m: Maker) -> str:
    return m.put("Flatten", m.put("GlobalAveragePool", conv_head(m, m.body(pool=False))), axis=1)


def conv_before_mean(m: Maker) -> str:
    return m.put("ReduceMean", conv_head(m, m.body(pool=False)), axes=[2, 3], keepdims=0)


def conv_behind_pool(m: Maker) -> str:
    return m.put("Flatten", conv_head(m, m.put("GlobalAveragePool", m.body(pool=False))), axis=1)


def behind_dropout(m: Maker) -> str:
    return m.put("Identity", m.put("Dropout", m.head(m.put("Dropout", m.body()))))


ONE_MATRIX: dict[str, Callable[[Maker], str]] = {
    "MatMul and Add": matmul_add, "no bias": no_bias, "norm before": norm_before, "norm after": norm_after,
    "two normed heads averaged": two_norms, "convolution before the pool": conv_before_pool,
    "convolution before a mean": conv_before_mean, "convolution behind the pool": conv_behind_pool,
    "dropout on both sides": behind_dropout,
}  # fmt: skip


@pytest.mark.parametrize("pattern", ONE_MATRIX)
def test_the_classifier_is_one_matrix(pattern: str, foreigners: Foreigners) -> None:
    done = foreigners.adopt(foreigners.write(ONE_MATRIX[pattern]))
    assert done.card.head is not None
    assert done.card.head.kind == "gemm"
    assert done.body.weight is not None
    assert done.body.weight.shape == (len(NAMES), WIDTH)
    assert done.proof.difference is not None
    assert done.proof.difference < 1e-5
    assert done.proof.varies > 0.01


def relu_behind(m: Maker) -> str:
    return m.put("Relu", m.head(m.body()))


def relu_before_pool(m: Maker) -> str:
    """SqueezeNet: a ReLU between convolution and pool."""
    return m.put("Flatten", m.put("GlobalAveragePool", m.put("Relu", conv_head(m, m.body(pool=False)))), axis=1)


def two_tokens(m: Maker) -> str:
    """Distilled DeiT: the mean of two heads on two different tokens."""
    f = m.body()
    return m.put("Div", m.put("Add", m.head(f), m.head(m.put("Sigmoid", f))), m.weight(2.0))


@pytest.mark.parametrize("build", [relu_behind, relu_before_pool, two_tokens])
def test_where_no_matrix_can_be_the_tail_starts_from_the_logits(
    build: Callable[[Maker], str], foreigners: Foreigners
) -> None:
    done = foreigners.adopt(foreigners.write(build))
    assert done.card.head is not None
    assert (done.card.head.kind, done.card.head.input) == ("logits", "raw_logits")
    assert done.proof.passed
    assert "no one matrix" in done.body.found


def test_a_classifier_that_two_outputs_share(foreigners: Foreigners) -> None:
    def shared(m: Maker) -> list[str]:
        z = m.head(m.body(), output="z")
        return [m.put("Softmax", z, axis=1, output="p"), m.put("ArgMax", z, axis=1, output="label"), z]

    done = foreigners.adopt(foreigners.write(shared))
    assert done.found.output == "z"
    assert done.body.weight is not None


@pytest.mark.parametrize("whole", [True, False])
def test_half_precision_bodies_get_a_float32_tail(whole: bool, foreigners: Foreigners) -> None:
    """Source and tail bound to different types is what a file without the cast fails with."""

    def half(m: Maker) -> str:
        return m.put("Softmax", m.head(m.body("input" if whole else m.put("Cast", "input", to=10))), axis=1)

    elem = TensorProto.FLOAT16 if whole else TensorProto.FLOAT
    done = foreigners.adopt(foreigners.write(half, half=True, elem=elem))
    assert done.found.foreign.precision == "float16"
    assert done.proof.allowed == 1e-3
    assert done.card.precision["dtype"] == "float16"
    assert done.body.weight is not None
    assert done.proof.varies > 0.01


def quantized(m: Maker) -> str:
    """QDQ as onnxruntime's quantizer writes it by default: the softmax's output too, row sums down to .97."""

    def qdq(x: str, scale: float, zero: int = 0) -> str:
        s, z = m.weight(scale), m.weight(zero, dtype=np.uint8)
        return m.put("DequantizeLinear", m.put("QuantizeLinear", x, s, z), s, z)

    p = m.put("Softmax", qdq(m.head(qdq(m.body(), 0.02)), 0.05, 128), axis=1)
    return qdq(p, 1 / 255)


def test_a_quantized_softmax_is_followed_to_1e_2_with_equal_winners(foreigners: Foreigners) -> None:
    done = foreigners.adopt(foreigners.write(quantized))
    assert done.found.kind == "probabilities"
    assert done.found.foreign.precision == "int8"
    assert done.proof.allowed == 1e-2
    assert done.proof.winners_equal
    # finer than the file's own, which counts in 255ths
    assert done.proof.difference is not None
    assert 1e-4 < done.proof.difference < 1e-2


def test_sums_of_a_quantized_softmax_are_no_contradiction(foreigners: Foreigners) -> None:
    run = onnxruntime.InferenceSession(str(foreigners.write(quantized)))
    x = np.random.default_rng(0).uniform(0, 1, (8, 3, 16, 16)).astype(np.float32)
    sums = run.run(None, {"input": x})[0].sum(1)
    assert np.abs(sums - 1).max() > 1e-3  # numbers alone would call it sigmoid


@pytest.mark.parametrize("level", ["EXTENDED", "ALL"])
def test_operators_of_onnxruntime_are_run_and_not_inferred(level: str, foreigners: Foreigners, tmp_path: Path) -> None:
    """onnx's inference stops at com.microsoft's fused convolutions; the head behind them is found all the same."""
    path, fused = foreigners.write(matmul_add), tmp_path / "fused.onnx"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath = str(fused)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    assert {n.domain for n in onnx.load(str(fused)).graph.node} - {"", "ai.onnx"}
    done = foreigners.adopt(fused)
    assert done.proof.passed
    assert done.body.weight is not None
