from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from calibrant.artifacts import onnx_wire as wire
from calibrant.artifacts.model_card import KEY, _block_hash
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.artifacts.onnx_rewrite import rewrite
from calibrant.errors import DataError, FormatError

from .conftest import CLASSES


def small_model(path: Path, *, typed: bool = False) -> onnx.ModelProto:
    """y = x * w + b, written by the onnx package."""
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2, 3], w.ravel()) if typed else numpy_helper.from_array(w, "w")
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["m"], name="mul"), helper.make_node("Add", ["m", "b"], ["y"])],
        "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [weight, numpy_helper.from_array(np.float32([1.5]), "b")],
    )  # fmt: skip
    model = helper.make_model(graph, producer_name="somebody", ir_version=8)
    model.doc_string = "grün"
    helper.set_model_props(model, {"licence": "MIT", "note": "ü" * 200})
    path.write_bytes(model.SerializeToString())
    return model


def test_reader_sees_what_the_onnx_package_wrote(tmp_path: Path) -> None:
    model = small_model(tmp_path / "m.onnx")
    file = OnnxFile.open(tmp_path / "m.onnx")
    assert (file.ir_version, file.producer, file.description) == (8, "somebody", "grün")
    assert file.opsets == {"": model.opset_import[0].version}
    assert file.metadata == {"licence": "MIT", "note": "ü" * 200}
    assert [(n.op, n.name, n.inputs, n.outputs) for n in file.nodes] == [
        ("Mul", "mul", ("x", "w"), ("m",)), ("Add", "", ("m", "b"), ("y",)),
    ]  # fmt: skip
    assert file.inputs == (wire.Value("x", 1, ("N", 3)),)
    np.testing.assert_array_equal(file.array("w"), numpy_helper.to_array(model.graph.initializer[0]))


@pytest.mark.parametrize("typed", [False, True])
def test_weight_hash_is_the_documented_one(tmp_path: Path, typed: bool) -> None:
    small_model(tmp_path / "m.onnx", typed=typed)
    digest = hashlib.sha256()
    for name, dims, values in (("b", "1", np.float32([1.5])), ("w", "2,3", np.arange(6, dtype=np.float32))):
        digest.update(f"{name}|1|{dims}|".encode() + values.tobytes())
    assert OnnxFile.open(tmp_path / "m.onnx").hash_weights() == digest.hexdigest()


def test_attributes_of_every_kind_survive(tmp_path: Path) -> None:
    node = wire.Node("X", ("a",), ("b",), "n", {"i": -3, "f": 0.5, "s": "linear", "many": [1, -2, 300]})
    read = onnx.NodeProto.FromString(node.encode())
    values = {a.name: helper.get_attribute_value(a) for a in read.attribute}
    assert values == {"i": -3, "f": 0.5, "s": b"linear", "many": [1, -2, 300]}
    for attribute in read.attribute:
        onnx.checker.check_attribute(attribute)


def test_cut_anywhere_is_an_error_or_a_missing_block(deployed: Path, tmp_path: Path) -> None:
    data = deployed.read_bytes()
    broken = tmp_path / "cut.onnx"
    rng = np.random.default_rng(0)
    for end in [1, 2, 7, len(data) - 1, *rng.integers(1, len(data) - 1, 60).tolist()]:
        broken.write_bytes(data[:end])
        with pytest.raises(FormatError, match=r"damaged|missing|not an ONNX|without a calibrant"):
            OnnxFile.open(broken).card()


def test_cut_before_the_metadata_says_that_the_block_is_missing(deployed: Path, tmp_path: Path) -> None:
    data = deployed.read_bytes()
    found = list(wire.fields(data, 0, len(data)))
    graph = next(f for f in found if f.number == 7)
    ends = [f.begin for f in found if f.begin >= graph.end]
    assert len(ends) >= 2
    for end in ends:
        (tmp_path / "cut.onnx").write_bytes(data[:end])
        with pytest.raises(FormatError, match="metadata block is missing"):
            OnnxFile.open(tmp_path / "cut.onnx").card()


@pytest.mark.parametrize(
    "content", [b"", b"\x89PNG\r\n\x1a\n" + bytes(50), b"PK\x03\x04" + b"x" * 99, b"hello world\n"]
)
def test_other_files_are_named_as_such(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.onnx"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"other\.onnx"):
        OnnxFile.open(path)


def test_missing_file_and_folder_are_clear(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        OnnxFile.open(tmp_path / "none.onnx")
    with pytest.raises(DataError, match="cannot be read"):
        OnnxFile.open(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hashes", None), ("classes", 3), ("prior", {"train": [0.0] * 5, "target": None, "absorbed": 0, "applied": 1}),
        ("class_temperatures", [1, 1, 1, 1, 0]), ("calibrator", "temperature"), ("metrics", []), ("head", {"kind": ""}),
        ("outputs", ["probabilities"]), ("gauge", "median"), ("abstain_below", "0.5"), ("history", ["edited"]),
        ("verify", {"max_diff": {}}), ("preprocessing", {"size": [1e400, 2]}),
    ],
)  # fmt: skip
def test_a_block_of_another_shape_is_damaged_even_with_the_right_hash(
    deployed: Path, tmp_path: Path, field: str, value: object
) -> None:
    file = OnnxFile.open(deployed)
    block = json.loads(file.metadata[KEY]) | {field: value}
    if isinstance(block["hashes"], dict):
        block["hashes"]["block"] = _block_hash(block)
    rewrite(file, tmp_path / "m.onnx", metadata=lambda _: {KEY: json.dumps(block)})
    with pytest.raises(FormatError, match="damaged"):
        OnnxFile.open(tmp_path / "m.onnx").card()


def test_a_block_without_end_is_damaged(deployed: Path, tmp_path: Path) -> None:
    rewrite(OnnxFile.open(deployed), tmp_path / "m.onnx", metadata=lambda _: {KEY: "[" * 100_000})
    with pytest.raises(FormatError, match="damaged"):
        OnnxFile.open(tmp_path / "m.onnx").card()


@pytest.mark.parametrize("location", ["/etc/passwd", "../secret", ""])
def test_weights_outside_of_the_folder_are_not_read(tmp_path: Path, location: str) -> None:
    from calibrant.export.checks.inspection import describe

    tensor = numpy_helper.from_array(np.zeros(3, np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    graph = helper.make_graph([], "g", [], [], [tensor])
    (tmp_path / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(FormatError, match=f'its weights lie at "{location}", which is not beside it'):
        describe(tmp_path / "m.onnx")


def test_foreign_file_says_who_wrote_it(tmp_path: Path) -> None:
    small_model(tmp_path / "m.onnx")
    with pytest.raises(FormatError, match='without a calibrant block.*"somebody"'):
        OnnxFile.open(tmp_path / "m.onnx").card()


def test_tampered_block_and_newer_block_are_refused(deployed: Path, tmp_path: Path) -> None:
    file = OnnxFile.open(deployed)
    block = file.metadata[KEY]
    for changed, message in (
        (block.replace(f'"{CLASSES[0]}"', '"oak"'), "does not match its own hash"),
        (block.replace('"format_version": 1', '"format_version": 99'), "format 99 is newer"),
        (block[:-5], "damaged calibrant metadata"),
    ):
        path = tmp_path / "t.onnx"
        rewrite(file, path, metadata=lambda _, text=changed: {KEY: text})  # type: ignore[misc]
        with pytest.raises(FormatError, match=message):
            OnnxFile.open(path).card()


def test_inspect_helps_with_a_foreign_file(tmp_path: Path) -> None:
    from calibrant.export.checks.inspection import describe, foreign_lines

    path = tmp_path / "m.onnx"
    small_model(path)
    found = describe(path)
    assert found.card is None
    assert not found.intact
    text = "\n".join(foreign_lines(found))
    for part in ("without a calibrant block", "somebody", "x float32 [N, 3]", "y float32 [N, 3]", "1 Mul, 1 Add"):
        assert part in text
    assert found.to_dict()["operators"] == {"Mul": 1, "Add": 1}
