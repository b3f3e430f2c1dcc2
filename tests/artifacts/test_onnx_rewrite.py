"""A rewritten file holds what was put in, and the rest byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from calibrant.artifacts import onnx_wire as wire
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.artifacts.onnx_rewrite import GraphEdit, rewrite
from calibrant.errors import DataError

from ..export.test_onnx_file import small_model


def test_rewrite_is_read_back_by_the_onnx_package(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    small_model(path)
    edit = GraphEdit(
        nodes=[wire.Node("Softmax", ("y",), ("p",), "calibrant/s", {"axis": -1})],
        initializers={"calibrant/t": np.float32([[1, 2]])},
        outputs=[wire.Value("p", 1, ("N", 3))],
    )
    rewrite(OnnxFile.open(path), path, edit=edit, metadata=lambda f: {"new": f.hash_graph()}, drop_keys=["note"],
            producer=("calibrant", "9"), description="")  # fmt: skip
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert [n.op_type for n in model.graph.node] == ["Mul", "Add", "Softmax"]
    assert helper.get_attribute_value(model.graph.node[2].attribute[0]) == -1
    assert [o.name for o in model.graph.output] == ["p"]
    np.testing.assert_array_equal(numpy_helper.to_array(model.graph.initializer[2]), [[1, 2]])
    graph = model.graph.SerializeToString()
    props = {p.key: p.value for p in model.metadata_props}
    assert props == {"licence": "MIT", "new": OnnxFile.open(path).hash_graph()}
    assert len(props["new"]) == 64
    assert graph
    assert (model.producer_name, model.producer_version) == ("calibrant", "9")
    # what is under our prefix goes again with the next edit
    rewrite(OnnxFile.open(path), path, edit=GraphEdit(outputs=[wire.Value("y", 1, ("N", 3))]), metadata=lambda f: {})
    model = onnx.load(path)
    assert [n.op_type for n in model.graph.node] == ["Mul", "Add"]
    assert [t.name for t in model.graph.initializer] == ["w", "b"]


def test_only_metadata_changes_where_only_metadata_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    small_model(path)
    before = OnnxFile.open(path)
    graph = path.read_bytes()[slice(*before.graph)]
    after = rewrite(before, path, metadata=lambda f: {"calibrant": "{}"}, drop_keys=())
    assert path.read_bytes()[slice(*after.graph)] == graph
    assert after.metadata == {**before.metadata, "calibrant": "{}"}
    assert after.hashes() == before.hashes()


def test_weights_beside_the_file_go_along_to_another_folder(tmp_path: Path) -> None:
    model = small_model(tmp_path / "plain.onnx")
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    onnx.save_model(model, str(here / "m.onnx"), save_as_external_data=True, location="m.data", size_threshold=0)
    moved = rewrite(OnnxFile.open(here / "m.onnx"), there / "m.onnx", metadata=lambda f: {})
    assert (there / "m.data").read_bytes() == (here / "m.data").read_bytes()
    assert moved.hash_weights() == OnnxFile.open(here / "m.onnx").hash_weights()
    (there / "m.data").write_bytes(b"another model's")
    with pytest.raises(DataError, match=r"m\.data: is the weights file of another model"):
        rewrite(OnnxFile.open(here / "m.onnx"), there / "m.onnx", metadata=lambda f: {})
