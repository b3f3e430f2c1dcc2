"""Foreign files come into one form, whatever exporter and opset wrote them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from calibrant.errors import ConfigError, FormatError, ModelError
from calibrant.export.adoption.reading.foreign import Foreign

from ..conftest import NAMES, Foreigners, Maker, typed


def softmax(m: Maker) -> str:
    return m.put("Softmax", m.head(m.body()), axis=1)


@pytest.mark.parametrize(("opset", "ir"), [(7, 3), (9, 4), (11, 6), (13, 7), (18, 8), (21, 10), (25, 11)])
def test_every_opset_is_adopted(opset: int, ir: int, foreigners: Foreigners) -> None:
    done = foreigners.adopt(foreigners.write(softmax, opset=opset, ir=ir))
    assert done.proof.passed
    assert done.body.weight is not None
    onnx.checker.check_model(str(foreigners.adopted))
    assert {o.version for o in onnx.load(str(foreigners.adopted)).opset_import} == {max(opset, 18)}


def test_weights_among_the_inputs_of_an_old_file_are_no_inputs(foreigners: Foreigners) -> None:
    """IR 3 demands that every weight is an input too; adopted as such the file would miss them all."""
    done = foreigners.adopt(foreigners.write(softmax, opset=7, ir=3, as_inputs=True))
    model = onnx.load(str(foreigners.adopted))
    assert [i.name for i in model.graph.input] == ["images"]
    assert model.ir_version >= 8
    assert done.proof.difference is not None
    assert done.proof.difference < 1e-5


def test_values_that_bear_names_of_ours_are_renamed(foreigners: Foreigners) -> None:
    """A value "logits" of the network must not become the tail's, nor a node under our prefix be taken out."""

    def names(m: Maker) -> str:
        f = m.put("Identity", m.body(), output="logits")
        z = m.put("Identity", m.head(m.put("Identity", f, output="probabilities")), output="features")
        m.nodes[0].name = "calibrant/stem"
        return m.put("Softmax", z, axis=1, output="images")

    done = foreigners.adopt(foreigners.write(names))
    assert done.found.output == "images"
    assert done.proof.passed


def test_a_branch_inside_keeps_what_it_reads(foreigners: Foreigners) -> None:
    """Values that an If takes from outside are renamed there too."""

    def branch(m: Maker) -> str:
        m.put("Identity", m.body(), output="features")
        here = helper.make_graph(
            [helper.make_node("Identity", ["features"], ["taken"])], "then", [], [onnx.ValueInfoProto(name="taken")]
        )
        there = helper.make_graph(
            [helper.make_node("Neg", ["features"], ["left"])], "else", [], [onnx.ValueInfoProto(name="left")]
        )
        yes = m.weight(True, dtype=bool)
        return m.head(m.put("If", yes, then_branch=here, else_branch=there))

    assert foreigners.adopt(foreigners.write(branch)).proof.passed


def test_weights_beside_the_file_come_along(foreigners: Foreigners, tmp_path: Path) -> None:
    path = foreigners.write(softmax)
    model = onnx.load(str(path))
    onnx.save_model(model, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert foreigners.adopt(path).proof.passed
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(FormatError, match=r"weights file weights\.bin is missing"):
        foreigners.adopt(path)


def test_several_required_inputs_are_named(foreigners: Foreigners) -> None:
    """Keras' own export turns two constants of EfficientNetB0's normalisation into inputs."""
    path = foreigners.write(softmax)
    model = onnx.load(str(path))
    for name in ("mean", "variance"):
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]))
    onnx.save(model, str(path))
    with pytest.raises(ModelError, match="takes 3 inputs, expected one picture input: input, mean, variance"):
        foreigners.adopt(path)


def test_functions_of_the_file_are_opened_up(foreigners: Foreigners) -> None:
    path = foreigners.write(softmax)
    model = onnx.load(str(path))
    last = model.graph.node[-1]
    body = [helper.make_node("Softmax", ["z"], ["p"], axis=1)]
    model.functions.append(helper.make_function("own", "Ends", ["z"], ["p"], body, [helper.make_opsetid("", 17)]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    made = helper.make_node("Ends", list(last.input), list(last.output), name="ends", domain="own")
    model.graph.node.remove(last)
    model.graph.node.append(made)
    onnx.save(model, str(path))
    assert foreigners.adopt(path).found.kind == "probabilities"


def test_our_own_files_are_not_adopted(foreigners: Foreigners) -> None:
    foreigners.adopt(foreigners.write(softmax))
    with pytest.raises(FormatError, match=r"file of Calibrant already; edit it with.*verify --reseal"):
        Foreign.load(foreigners.adopted)


def test_no_onnx_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"PK\x03\x04 a zip")
    with pytest.raises(FormatError, match="not an ONNX file"):
        Foreign.load(tmp_path / "model.onnx")


def test_an_output_of_shapes_unknown_is_seen_by_running(foreigners: Foreigners) -> None:
    """torchscript and Keras write no shapes of values: ranks come from a run."""
    path = foreigners.write(lambda m: m.put("Add", m.put("MatMul", m.body(), m.weight(m.rng.normal(0, 1, (8, 5)))),
                                            m.weight(m.rng.normal(0, 1, 5))))  # fmt: skip
    model = onnx.load(str(path))
    del model.graph.value_info[:]
    onnx.save(typed(model), str(path))
    assert foreigners.adopt(path).body.weight is not None


def test_a_pointer_of_git_lfs_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(FormatError, match=r"pointer of Git LFS; .*git lfs pull"):
        Foreign.load(tmp_path / "model.onnx")


def test_weights_cut_short_beside_the_file_are_one_line(foreigners: Foreigners, tmp_path: Path) -> None:
    path = foreigners.write(softmax)
    onnx.save_model(onnx.load(str(path)), str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").write_bytes((tmp_path / "w.bin").read_bytes()[:100])
    with pytest.raises(FormatError, match="weights file is damaged .*copy both files"):
        Foreign.load(path)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (str(dict(enumerate(NAMES))), NAMES),
        ("{0: 'a b', 1: '\u732b'}", ("a b", "\u732b")),
        ("{1: 'a', 0: 'b'}", None), ("{'0': 'a'}", None), ("['a', 'b']", None), ("{}", None),
        ("__import__('os')", None),
    ],
)  # fmt: skip
def test_class_names_beside_the_graph_are_read(
    text: str, names: tuple[str, ...] | None, foreigners: Foreigners
) -> None:
    path = foreigners.write(softmax)
    model = onnx.load(str(path))
    onnx.helper.set_model_props(model, {"names": text})
    onnx.save(model, str(path))
    assert Foreign.load(path).named == names
    if names == NAMES:
        assert foreigners.adopt(path, classes=None).card.classes == NAMES
        with pytest.raises(ConfigError, match="names its classes itself, and number 0 differs"):
            foreigners.adopt(path, classes=NAMES[::-1])
