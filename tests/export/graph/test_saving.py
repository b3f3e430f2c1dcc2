from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from calibrant.export.graph import saving


def test_large_weights_go_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = helper.make_tensor_value_info("x", 1, [600])
    weight = numpy_helper.from_array(np.arange(600, dtype=np.float32), "w")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x],
                              [helper.make_tensor_value_info("y", 1, [600])], [weight])  # fmt: skip
    model = helper.make_model(graph)
    saving.save(model, tmp_path / "small.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["small.onnx"]
    monkeypatch.setattr(saving, "LARGEST", 0)
    saving.save(model, tmp_path / "large.onnx")
    assert (tmp_path / "large.onnx.data").stat().st_size >= 2400
    assert onnx.load(str(tmp_path / "large.onnx")).graph.node[0].op_type == "Add"
