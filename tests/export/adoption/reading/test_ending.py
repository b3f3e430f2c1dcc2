"""Whatever activation an exporter leaves behind, the logits before it are found, and a matrix before those."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

from calibrant.errors import ModelError
from calibrant.export.adoption.pictures import random_pictures
from calibrant.serve.engine.classifier import load

from ..conftest import NAMES, SIZE, WIDTH, Foreigners, Maker, spread


def softmax_by_hand(m: Maker) -> str:
    z = m.head(m.body())
    e = m.put("Exp", m.put("Sub", z, m.put("ReduceMax", z, axes=[1], keepdims=1)))
    return m.put("Div", e, m.put("ReduceSum", e, m.weight([1], dtype=np.int64), keepdims=1))


def log_softmax_by_hand(m: Maker) -> str:
    z = m.head(m.body())
    return m.put("Sub", z, m.put("ReduceLogSumExp", z, axes=[1], keepdims=1))


def clipped(m: Maker) -> str:
    p = m.put("Softmax", m.head(m.body()), axis=1)
    return m.put("Clip", p, m.weight(1e-7), m.weight(1.0))


def percent(m: Maker) -> str:
    return m.put("Mul", m.put("Softmax", m.head(m.body()), axis=1), m.weight(100.0))


def argmax(m: Maker) -> str:
    return m.put("ArgMax", m.put("Softmax", m.head(m.body()), axis=1), axis=1, keepdims=0)


def argmax_of_logits(m: Maker) -> str:
    return m.put("ArgMax", m.head(m.body()), axis=1, keepdims=0)


def temperature_inside(m: Maker) -> str:
    return m.put("Softmax", m.put("Div", m.head(m.body()), m.weight(1.7)), axis=-1)


ENDS: dict[str, tuple[Callable[[Maker], str], str]] = {
    "logits": (lambda m: m.head(m.body()), "logits"),
    "softmax": (lambda m: m.put("Softmax", m.head(m.body()), axis=1), "probabilities"),
    "log-softmax": (lambda m: m.put("LogSoftmax", m.head(m.body()), axis=1), "log-probabilities"),
    "exp of log-softmax": (
        lambda m: m.put("Exp", m.put("LogSoftmax", m.head(m.body()), axis=1)), "probabilities"),
    "log of softmax": (lambda m: m.put("Log", m.put("Softmax", m.head(m.body()), axis=1)), "log-probabilities"),
    "softmax written out": (softmax_by_hand, "probabilities"),
    "log-softmax written out": (log_softmax_by_hand, "log-probabilities"),
    "clip behind softmax": (clipped, "probabilities"),
    "dropout and identity": (
        lambda m: m.put("Identity", m.put("Softmax", m.put("Dropout", m.head(m.body())), axis=1)), "probabilities"),
    "percent": (percent, "percent"),
    "labels": (argmax, "label"),
    "labels of logits": (argmax_of_logits, "label"),
    "a temperature inside": (temperature_inside, "probabilities"),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_the_matrix_before_the_activation_is_found_and_proved(end: str, foreigners: Foreigners) -> None:
    build, kind = ENDS[end]
    done = foreigners.adopt(foreigners.write(build))
    assert done.found.kind == kind
    assert done.body.weight is not None
    assert done.body.weight.shape == (len(NAMES), WIDTH)
    assert done.proof.passed
    assert done.proof.winners_equal
    if kind != "label":
        assert done.proof.difference is not None
        assert done.proof.difference < 1e-5
        assert done.proof.varies > 0.01


def test_of_two_outputs_the_logits_are_taken_whatever_their_place(foreigners: Foreigners) -> None:
    def both(m: Maker) -> list[str]:
        z = m.head(m.body(), output="scores")
        return [m.put("Softmax", z, axis=1, output="probs"), z]

    done = foreigners.adopt(foreigners.write(both))
    assert (done.found.output, done.found.kind) == ("scores", "logits")


def test_two_heads_are_asked_about_and_chosen_by_name(foreigners: Foreigners) -> None:
    def two(m: Maker) -> list[str]:
        f = m.body()
        return [m.head(f, output="main"), m.head(f, output="aux")]

    path = foreigners.write(two)
    with pytest.raises(ModelError, match=r"several outputs.*main, aux; choose one with --output"):
        foreigners.adopt(path)
    assert foreigners.adopt(path, output="aux").found.output == "aux"


def test_top_k_is_walked_through_to_the_softmax(foreigners: Foreigners) -> None:
    def top(m: Maker) -> list[str]:
        p = m.put("Softmax", m.head(m.body()), axis=1)
        k = m.weight([2], dtype=np.int64)
        from onnx import helper

        m.nodes.append(helper.make_node("TopK", [p, k], ["best", "which"], name="top", axis=1))
        return ["best", "which"]

    done = foreigners.adopt(foreigners.write(top))
    assert (done.found.output, done.found.kind) == ("which", "label")
    assert done.proof.winners_equal
    assert done.body.weight is not None


@pytest.mark.parametrize("opset", [9, 11])
def test_an_old_softmax_over_the_whole_batch_is_refused(opset: int, foreigners: Foreigners) -> None:
    """Before opset 13 Softmax flattens from its axis on: axis 0 makes one row of the batch."""
    path = foreigners.write(lambda m: m.put("Softmax", m.head(m.body()), axis=0), opset=opset, ir=6)
    with pytest.raises(ModelError, match=f"axis 0.*opset {opset}"):
        foreigners.adopt(path)


def test_an_old_softmax_on_one_place_each_is_taken(foreigners: Foreigners) -> None:
    def old(m: Maker) -> str:
        f = m.put("GlobalAveragePool", m.body(pool=False))
        w, b = spread(m.rng, len(NAMES))
        z = m.put("Conv", f, m.weight(w[:, :, None, None]), m.weight(b))
        return m.put("Flatten", m.put("Softmax", z, axis=1), axis=1)

    done = foreigners.adopt(foreigners.write(old, opset=11, ir=6))
    assert done.found.kind == "probabilities"
    assert done.body.weight is not None


def test_a_single_sigmoid_becomes_a_softmax_of_two(foreigners: Foreigners) -> None:
    path = foreigners.write(lambda m: m.put("Sigmoid", m.head(m.body(), 1)))
    done = foreigners.adopt(path, classes=["no", "yes"])
    assert done.body.weight is not None
    assert done.body.weight.shape == (2, WIDTH)
    assert np.all(done.body.weight[0] == 0)
    assert done.proof.difference is not None
    assert done.proof.difference < 1e-6


def both_classes(m: Maker, apart: bool) -> str:
    """[1 - s, s], as Keras users and skl2onnx's binary networks write it; `apart`: stacked, as torch.stack does."""
    s = m.put("Sigmoid", m.head(m.body(), 1))
    first = m.put("Sub", m.weight([1.0]), s)
    if not apart:
        return m.put("Concat", first, s, axis=1)
    columns = [m.put("Unsqueeze", v, m.weight([2], dtype=np.int64)) for v in (first, s)]
    return m.put("Flatten", m.put("Concat", *columns, axis=2), axis=1)


@pytest.mark.parametrize("apart", [False, True])
def test_a_sigmoid_and_its_complement_are_a_softmax_of_two(apart: bool, foreigners: Foreigners) -> None:
    done = foreigners.adopt(foreigners.write(lambda m: both_classes(m, apart)), classes=["no", "yes"])
    assert done.found.kind == "probabilities"
    assert done.body.weight is not None
    assert np.all(done.body.weight[0] == 0)
    assert done.found.floor is None
    assert done.proof.difference is not None
    assert done.proof.difference < 1e-6


def test_a_sigmoid_and_another_are_not(foreigners: Foreigners) -> None:
    def two(m: Maker) -> str:
        f = m.body()
        s = m.put("Sigmoid", m.head(f, 1))
        return m.put("Concat", m.put("Sub", m.weight([1.0]), m.put("Sigmoid", m.head(f, 1))), s, axis=1)

    with pytest.raises(ModelError, match="say which with --output-kind"):
        foreigners.adopt(foreigners.write(two), classes=["no", "yes"])


@pytest.mark.parametrize("op", ["Concat", "Add"])
def test_several_sigmoids_side_by_side_or_averaged_are_no_logits(op: str, foreigners: Foreigners) -> None:
    """A head for each label, and the mean of two views: values between 0 and 1 that a plain operator made."""

    def several(m: Maker) -> str:
        f = m.body()
        if op == "Concat":
            return m.put("Concat", *(m.put("Sigmoid", m.head(f, 1)) for _ in NAMES), axis=1)
        both = m.put("Add", m.put("Sigmoid", m.head(f)), m.put("Sigmoid", m.head(f)))
        return m.put("Div", both, m.weight(2.0))

    with pytest.raises(ModelError, match=r"structure says logits .*its numbers say sigmoid"):
        foreigners.adopt(foreigners.write(several))


@pytest.mark.parametrize("back", [False, True])
def test_rounded_probabilities_are_never_logits(back: bool, foreigners: Foreigners) -> None:
    """Rows of 98 and 101 percent looked like logits before, of .98 and 1.01 like small ones."""

    def rounded(m: Maker) -> str:
        p = m.put("Mul", m.put("Softmax", m.head(m.body()), axis=1), m.weight(100.0))
        p = m.put("Round", p)
        return m.put("Div", p, m.weight(100.0)) if back else p

    told = "structure says probabilities" if back else "structure says percent"
    with pytest.raises(ModelError, match=rf"{told} \(Softmax -> Mul 100 -> Round"):
        foreigners.adopt(foreigners.write(rounded))


def test_one_sigmoid_a_class_is_independent_until_somebody_says_otherwise(foreigners: Foreigners) -> None:
    path = foreigners.write(lambda m: m.put("Sigmoid", m.head(m.body())))
    done = foreigners.adopt(path)
    assert done.card.outcome == "independent"
    assert "labels are independent" in done.notes[0]
    pixels = random_pictures(5, (SIZE, SIZE))
    found = done.found.taken.feed(pixels, done.declared)
    p = onnxruntime.InferenceSession(str(path)).run(None, {"input": found})[0]
    np.testing.assert_allclose(load(foreigners.adopted).predict(pixels).probabilities, p, atol=1e-6)
    assert foreigners.adopt(path, outcome="exclusive").card.outcome == "exclusive"


def test_the_first_column_that_fits_the_names_is_not_enough(foreigners: Foreigners) -> None:
    path = foreigners.write(lambda m: m.head(m.body()))
    with pytest.raises(ModelError, match=r'3 class names, but no output has 3 columns; it has "v\d+" \[5\]'):
        foreigners.adopt(path, classes=["a", "b", "c"])


def test_half_precision_casts_behind_the_softmax_are_walked_through(foreigners: Foreigners) -> None:
    def half(m: Maker) -> str:
        z = m.head(m.body(m.put("Cast", "input", to=TensorProto.FLOAT16)))
        return m.put("Cast", m.put("Softmax", z, axis=1), to=TensorProto.FLOAT)

    done = foreigners.adopt(foreigners.write(half, half=True))
    assert done.found.foreign.precision == "float16"
    assert done.body.weight is not None
    assert done.proof.difference is not None
    assert done.proof.difference < 1e-3
