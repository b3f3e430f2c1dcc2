"""Files of scikit-learn's, LightGBM's and XGBoost's converters: logits behind their own softmax, halved margins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from calibrant.errors import CalibrantError, ConfigError, ModelError
from calibrant.export.adoption.adopt import Adoption, adopt
from calibrant.serve.engine.classifier import load

GOLDEN = Path(__file__).parents[3] / "golden" / "adopt"
ROWS = np.random.default_rng(0).uniform(0, 16, (40, 64)).astype(np.float32)


def taken(name: str, tmp_path: Path, **options: object) -> Adoption:
    return adopt(GOLDEN / f"{name}.onnx", tmp_path / "out.onnx", **options)  # type: ignore[arg-type]


def original(name: str) -> np.ndarray:
    run = onnxruntime.InferenceSession(str(GOLDEN / f"{name}.onnx"), providers=["CPUExecutionProvider"])
    found = run.run(None, {run.get_inputs()[0].name: ROWS})[1]
    return np.asarray([list(row.values()) for row in found]) if isinstance(found, list) else np.asarray(found)


@pytest.mark.parametrize("name", ["skl2onnx-logistic", "skl2onnx-binary", "lightgbm", "xgboost"])
def test_the_adopted_file_says_what_the_converter_s_does(name: str, tmp_path: Path) -> None:
    done = taken(name, tmp_path)
    assert done.found.floor is None
    found = load(tmp_path / "out.onnx").predict(ROWS)
    np.testing.assert_allclose(found.probabilities, original(name), atol=2e-6)


def test_a_linear_classifier_is_one_matrix_and_a_margin_is_halved(tmp_path: Path) -> None:
    binary = taken("skl2onnx-binary", tmp_path)
    assert binary.body.weight is not None
    assert binary.body.weight.shape == (2, 64)
    p = original("skl2onnx-binary")[:, 1].astype(np.float64)
    found = load(tmp_path / "out.onnx").predict(ROWS)
    clear = (p > 1e-4) & (p < 1 - 1e-4)
    assert clear.any()
    expected = np.log(p[clear] / (1 - p[clear]))
    np.testing.assert_allclose((found.logits[:, 1] - found.logits[:, 0])[clear], expected, atol=2e-3)


def test_classes_come_from_the_file_and_are_checked(tmp_path: Path) -> None:
    assert taken("lightgbm", tmp_path).card.classes == tuple(map(str, range(10)))
    names = [f"digit {k}" for k in range(10)]
    assert taken("lightgbm", tmp_path, classes=names).card.classes == tuple(names)


def linear(labels: list[str], *, post: str, tmp_path: Path, op: str = "LinearClassifier") -> Path:
    """A classifier operator alone, of three numbers."""
    rng = np.random.default_rng(1)
    c = len(labels)
    w, b = rng.normal(size=(c, 3)), rng.normal(size=c)
    if c == 2:
        w[1], b[1] = -w[0], -b[0]
    extra = {"coefficients": w.reshape(-1).tolist(), "intercepts": b.tolist()} if op == "LinearClassifier" else {}
    node = helper.make_node(
        op, ["x"], ["label", "scores"], domain="ai.onnx.ml", classlabels_strings=labels, post_transform=post, **extra
    )
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("label", TensorProto.STRING, ["n"]),
         helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", c])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)], ir_version=8)
    path = tmp_path / "linear.onnx"
    onnx.save(model, str(path))
    return path


def test_raw_margins_with_both_signs_are_halved(tmp_path: Path) -> None:
    path = linear(["no", "yes"], post="NONE", tmp_path=tmp_path)
    done = adopt(path, tmp_path / "out.onnx")
    assert done.found.kind == "margin"
    x = np.random.default_rng(2).normal(size=(9, 3)).astype(np.float32)
    run = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    s = run.run(["scores"], {"x": x})[0][:, 1]
    p = load(tmp_path / "out.onnx").predict(x).probabilities[:, 1]
    np.testing.assert_allclose(p, 1 / (1 + np.exp(-s)), atol=1e-6)


def test_other_names_than_the_file_s_are_refused(tmp_path: Path) -> None:
    path = linear(["ash", "elm", "oak"], post="SOFTMAX", tmp_path=tmp_path)
    assert adopt(path, tmp_path / "out.onnx").card.classes == ("ash", "elm", "oak")
    with pytest.raises(ConfigError, match="number 1 differs.*ash, elm, oak"):
        adopt(path, tmp_path / "out.onnx", classes=["ash", "oak", "elm"])


def model_of(nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], outputs: list[onnx.ValueInfoProto]) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    opsets = [helper.make_opsetid("ai.onnx.ml", 1), helper.make_opsetid("", 17)]
    graph = helper.make_graph(nodes, "g", [x], outputs, weights)
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def machine(number: int, post: str) -> onnx.NodeProto:
    """A binary machine of three numbers, as skl2onnx writes each one of several."""
    w = np.random.default_rng(number).normal(size=3)
    return helper.make_node(
        "LinearClassifier", ["x"], [f"label{number}", f"scores{number}"], domain="ai.onnx.ml",
        classlabels_ints=[0, 1], post_transform=post, coefficients=[*-w, *w], intercepts=[-0.3, 0.3],
    )  # fmt: skip


def test_one_column_of_a_margin_is_a_logit_and_not_halved(tmp_path: Path) -> None:
    """A binary LinearSVC: an extractor takes the second of the two columns that are the margin with both signs."""
    take = helper.make_node(
        "ArrayFeatureExtractor", ["scores0", "second"], ["probabilities"], domain="ai.onnx.ml"
    )  # fmt: skip
    outputs = [
        helper.make_tensor_value_info("label0", TensorProto.INT64, ["n"]),
        helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", 1]),
    ]
    second = onnx.numpy_helper.from_array(np.array([1], np.int64), "second")
    path = tmp_path / "svc.onnx"
    path.write_bytes(model_of([machine(0, "NONE"), take], [second], outputs))
    done = adopt(path, tmp_path / "out.onnx")
    assert done.found.kind == "logits"
    x = np.random.default_rng(2).normal(size=(9, 3)).astype(np.float32)
    run = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    s = run.run(["probabilities"], {"x": x})[0][:, 0]
    p = load(tmp_path / "out.onnx").predict(x).probabilities[:, 1]
    np.testing.assert_allclose(p, 1 / (1 + np.exp(-s)), atol=1e-6)


def test_classes_are_the_whole_s_and_not_those_of_a_machine_inside(tmp_path: Path) -> None:
    """One against the rest: three machines of the classes 0 and 1, and a ZipMap that names the three."""
    nodes, weights = [], [
        onnx.numpy_helper.from_array(np.array(v, np.int64), k) for k, v in (("one", [1]), ("two", [2]))
    ]  # fmt: skip
    for k in range(3):
        nodes += [machine(k, "LOGISTIC"), helper.make_node("Slice", [f"scores{k}", "one", "two", "one"], [f"p{k}"])]
    nodes += [
        helper.make_node("Concat", ["p0", "p1", "p2"], ["all"], axis=1),
        helper.make_node("LpNormalization", ["all"], ["scores"], axis=1, p=1),
    ]
    zipped = helper.make_node(
        "ZipMap", ["scores"], ["named"], domain="ai.onnx.ml", classlabels_strings=["ash", "elm", "oak"]
    )  # fmt: skip
    named = onnx.ValueInfoProto(name="named")
    element = named.type.sequence_type.elem_type.map_type
    element.key_type = TensorProto.STRING
    element.value_type.tensor_type.elem_type = TensorProto.FLOAT
    path = tmp_path / "rest.onnx"
    path.write_bytes(model_of([*nodes, zipped], weights, [named]))
    assert adopt(path, tmp_path / "out.onnx").card.classes == ("ash", "elm", "oak")
    matrix = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 3])
    path.write_bytes(model_of(nodes, weights, [matrix]))
    with pytest.raises(ConfigError, match="does not name its classes"):
        adopt(path, tmp_path / "out.onnx")


def test_what_half_a_vote_for_none_moves_is_told(tmp_path: Path) -> None:
    """Two leaves that are sure of themselves: the file says 1 and 0, and the logarithm of 0 is none."""
    tree = helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", post_transform="NONE",
        classlabels_strings=["no", "yes", "maybe"], nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0], nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values=[0.5, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0], class_treeids=[0] * 5, class_nodeids=[1, 1, 1, 2, 2],
        class_ids=[0, 1, 2, 0, 1], class_weights=[1.0, 0.0, 0.0, 0.2, 0.8],
    )  # fmt: skip
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.STRING, ["n"]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 3]),
    ]
    path = tmp_path / "tree.onnx"
    path.write_bytes(model_of([tree], [], outputs))
    done = adopt(path, tmp_path / "out.onnx")
    assert done.found.floor == pytest.approx(0.1)  # half of a fifth
    # 1, 0, 0 becomes 1, .1, .1 and is divided by 1.2
    assert any("counts as 0.1" in note and "by up to 0.17 until it is calibrated" in note for note in done.notes)
    linear_file = linear(["ash", "elm", "oak"], post="SOFTMAX", tmp_path=tmp_path)
    assert not any("until it is calibrated" in note for note in adopt(linear_file, tmp_path / "out.onnx").notes)


def test_pairs_of_classes_are_no_classes(tmp_path: Path) -> None:
    path = linear(["a", "b", "c"], post="NONE", tmp_path=tmp_path, op="SVMClassifier")
    with pytest.raises(CalibrantError, match="pairs of classes|cannot"):
        adopt(path, tmp_path / "out.onnx")


def test_pictures_and_quantization_are_refused_in_words(tmp_path: Path) -> None:
    from calibrant.export.quantization.quantize import quantize_folders

    taken("xgboost", tmp_path)
    with pytest.raises(ConfigError, match="rows of numbers"):
        quantize_folders(tmp_path / "out.onnx", tmp_path / "q.onnx", tmp_path, None)
    with pytest.raises(CalibrantError, match=r"expected \[N, 64\]"):
        load(tmp_path / "out.onnx").predict(ROWS[:, :5])
    with pytest.raises(ConfigError, match="rows of numbers, not pictures"):
        taken("xgboost", tmp_path, preprocess="timm:resnet18")
    with pytest.raises(ModelError, match="does not say how many numbers"):
        adopt(_open_width(tmp_path), tmp_path / "out.onnx", classes=["a", "b"])


def _open_width(tmp_path: Path) -> Path:
    path = linear(["a", "b"], post="LOGISTIC", tmp_path=tmp_path)
    model = onnx.load(str(path))
    model.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    onnx.save(model, str(path))
    return path
