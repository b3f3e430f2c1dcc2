"""A file that takes rows of numbers, over a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from calibrant.artifacts.predictions import read_predictions
from calibrant.errors import DataError
from calibrant.export.adoption.adopt import adopt
from calibrant.serve.batch.predict import predict_model

GOLDEN = Path(__file__).parents[2] / "golden" / "adopt"


def test_a_table_is_predicted_with_its_labels_and_groups(tmp_path: Path) -> None:
    adopt(GOLDEN / "lightgbm.onnx", tmp_path / "out.onnx")
    rows = np.random.default_rng(0).uniform(0, 16, (40, 64)).astype(np.float32)
    y = np.arange(40) % 10
    table = tmp_path / "table.npz"
    np.savez(table, features=rows, labels=y, group=y // 5, split=np.where(y < 5, "val", "test"))
    found = read_predictions(predict_model(tmp_path / "out.onnx", table, tmp_path / "p.parquet", split="val"))
    assert found.labels.tolist() == y[y < 5].tolist()
    assert set(found.groups["group"]) == {"0"}
    run = onnxruntime.InferenceSession(str(GOLDEN / "lightgbm.onnx"), providers=["CPUExecutionProvider"])
    listed = run.run(["probabilities"], {"x": rows})[0]
    expected = np.asarray([list(row.values()) for row in listed])[y < 5]
    z = found.logits.astype(np.float64)
    p = np.exp(z - z.max(1, keepdims=True))
    np.testing.assert_allclose(p / p.sum(1, keepdims=True), expected, atol=2e-6)
    with pytest.raises(DataError, match='no rows of split "train".*test, val'):
        predict_model(tmp_path / "out.onnx", table, tmp_path / "p.parquet", split="train")
