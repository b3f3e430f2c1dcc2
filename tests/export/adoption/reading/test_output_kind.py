"""Structure and numbers must agree; a person may say what an output is."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from calibrant.errors import CheckFailed, ConfigError, ModelError
from calibrant.export.adoption.pictures import random_pictures
from calibrant.export.adoption.reading.output_kind import floor_of, kind_of_numbers
from calibrant.serve.engine.classifier import load

from ..conftest import NAMES, SIZE, Foreigners, Maker

LOGITS = np.random.default_rng(0).normal(0, 3, (20, 6))
P = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("values", "precision", "kind"),
    [
        (LOGITS, "float32", "logits"),
        (P, "float32", "probabilities"),
        (100 * P, "float32", "percent"),
        (np.log(P), "float32", "log-probabilities"),
        (1 / (1 + np.exp(-LOGITS)), "float32", "sigmoid"),
        (np.arange(20), "float32", "label"),
        (P.astype(np.float16), "float16", "probabilities"),
        (np.round(P * 255) / 255, "int8", "probabilities"),
        (np.round(P * 255) / 255, "float32", "sigmoid"),  # which is why the precision matters
        (LOGITS - 100, "float32", "logits"),
    ],
)
def test_numbers_say(values: np.ndarray, precision: str, kind: str) -> None:
    assert kind_of_numbers(values, precision) == kind


def test_one_row_in_many_that_breaks_the_rule_counts() -> None:
    broken = P.copy()
    broken[7, 0] += 0.3
    assert kind_of_numbers(broken, "float32") != "probabilities"


def test_nan_is_refused() -> None:
    with pytest.raises(ModelError, match="NaN or infinity"):
        kind_of_numbers(np.array([[0.5, np.nan]]), "float32")


def unknown_probabilities(m: Maker) -> str:
    """Powers of one half that sum to one, by operators that nobody would take for an activation."""
    z = m.put("Abs", m.put("Softplus", m.head(m.body())))
    return m.put("LpNormalization", z, axis=1, p=1)


def test_probabilities_that_no_known_operator_makes_stop_and_ask(foreigners: Foreigners) -> None:
    path = foreigners.write(unknown_probabilities)
    with pytest.raises(ModelError, match=r"structure says logits.*numbers say probabilities.*row sums 1 \.\. 1.*"
                       "say which with --output-kind"):  # fmt: skip
        foreigners.adopt(path)


def test_probabilities_without_logits_are_taken_by_their_logarithm(foreigners: Foreigners) -> None:
    done = foreigners.adopt(foreigners.write(unknown_probabilities), output_kind="probabilities")
    assert done.found.floor is not None
    assert done.card.adopted is not None
    assert "the file has no logits" in done.card.adopted["behind"]
    assert done.proof.difference is not None
    assert done.proof.difference < 1e-6


def test_sigmoids_without_logits_are_taken_by_those_of_each_label(foreigners: Foreigners) -> None:
    """A head for each label, side by side: log p - log(1 - p) gives every probability back."""

    def side_by_side(m: Maker) -> str:
        f = m.body()
        return m.put("Concat", *(m.put("Sigmoid", m.head(f, 1)) for _ in NAMES), axis=1)

    path = foreigners.write(side_by_side)
    done = foreigners.adopt(path, output_kind="sigmoid")
    assert done.card.outcome == "independent"
    assert done.found.floor == 2.0**-24
    pixels = random_pictures(9, (SIZE, SIZE))
    p = onnxruntime.InferenceSession(str(path)).run(None, {"input": done.found.taken.feed(pixels, done.declared)})[0]
    np.testing.assert_allclose(load(foreigners.adopted).predict(pixels).probabilities, p, atol=1e-6)
    with pytest.raises(ModelError, match="there are no logits"):
        foreigners.adopt(path, output_kind="sigmoid", outcome="exclusive")


def test_rectified_logits_below_one_are_no_sigmoid(foreigners: Foreigners) -> None:
    def small(m: Maker) -> str:
        return m.put("Relu", m.put("Mul", m.head(m.body()), m.weight(0.01)))

    assert foreigners.adopt(foreigners.write(small)).found.kind == "logits"


def test_a_softmax_by_hand_of_large_logarithms_is_read_and_fails_its_proof(foreigners: Foreigners) -> None:
    """exp(z - log sum exp z) of logits in the hundreds, as skl2onnx writes naive Bayes: sums are off by over 1e-5. That
    they are probabilities is seen; that float32 says them no better is what the proof refuses."""

    def large(m: Maker) -> str:
        z = m.put("Sub", m.head(m.body()), m.weight(np.full(len(NAMES), 900.0)))
        return m.put("Exp", m.put("Sub", z, m.put("ReduceLogSumExp", z, axes=[1], keepdims=1)))

    path = foreigners.write(large)
    x = np.random.default_rng(0).uniform(0, 1, (16, 3, 16, 16)).astype(np.float32)
    sums = onnxruntime.InferenceSession(str(path)).run(None, {"input": x})[0].sum(1)
    assert np.abs(sums - 1).max() > 1e-5
    with pytest.raises(CheckFailed, match=r"random pictures: largest difference in probabilities .* \(1e-05 allowed"):
        foreigners.adopt(path)


def test_a_person_may_say_that_a_softmax_gives_logits(foreigners: Foreigners) -> None:
    path = foreigners.write(lambda m: m.put("Softmax", m.head(m.body()), axis=1))
    done = foreigners.adopt(path, output_kind="logits")
    assert done.found.kind == "logits"
    assert done.body.weight is None


def test_a_kind_that_there_is_not(foreigners: Foreigners) -> None:
    with pytest.raises(ConfigError, match='did you mean "probabilities"'):
        foreigners.adopt(foreigners.write(lambda m: m.head(m.body())), output_kind="probability")


def test_votes_are_floored_at_half_a_vote() -> None:
    """50 trees: a class without a vote counts as half of one fiftieth."""
    votes = np.array([[0.0, 0.98, 0.02], [0.5, 0.5, 0.0], [0.04, 0.0, 0.96]])
    assert floor_of(votes) == pytest.approx(0.01)
    assert floor_of(np.array([[0.3, 0.7]])) == 1e-12
