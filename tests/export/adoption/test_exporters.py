"""Files that real exporters wrote (tests/golden/adopt), each adopted and followed on random pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant.export.adoption.adopt import adopt

GOLDEN = Path(__file__).parents[2] / "golden" / "adopt"
NAMES = [f"digit {k}" for k in range(10)]


@pytest.mark.parametrize(
    ("name", "kind", "layout", "head", "precision"),
    [
        ("torchscript-softmax", "probabilities", "NCHW", True, "float32"),
        ("dynamo-bgr", "logits", "NCHW", True, "float32"),
        ("float16", "probabilities", "NCHW", True, "float16"),
        ("onnxruntime-qdq", "probabilities", "NCHW", False, "int8"),
        ("onnxslim", "logits", "NCHW", True, "float32"),
        ("tf2onnx", "probabilities", "NHWC", True, "float32"),
        ("keras-export", "probabilities", "NHWC", True, "float32"),
        ("transformer-optimiser", "logits", "NCHW", True, "float32"),
    ],
)
def test_an_exporter_s_file(name: str, kind: str, layout: str, head: bool, precision: str, tmp_path: Path) -> None:
    done = adopt(GOLDEN / f"{name}.onnx", tmp_path / "out.onnx", classes=NAMES)
    assert (done.found.kind, done.found.taken.layout) == (kind, layout)
    assert (done.body.weight is not None) == head
    assert done.proof.passed
    assert done.proof.precision == precision
    assert done.card.preprocessing.size == (24, 24)
