"""Every row of the table of verdicts, and what must never be guessed in silence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from calibrant.artifacts.foreign.kinds import Kind, Told, tell
from calibrant.artifacts.foreign.outcome import Outcome
from calibrant.errors import DataError

Matrix = NDArray[np.float64]
HERE = Path("preds.npz")


def logits(rows: int = 60, classes: int = 4) -> Matrix:
    return np.random.default_rng(0).normal(size=(rows, classes)) * 3


def softmax(z: Matrix) -> Matrix:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def sigmoid(z: Matrix) -> Matrix:
    return 1 / (1 + np.exp(-z))


def told(values: Matrix, outcome: Outcome = "exclusive", asked: Kind | None = None) -> Told:
    return tell(np.asarray(values, np.float64), outcome=outcome, asked=asked, where=HERE)


def test_logits_stay_what_they_are() -> None:
    z = logits()
    found = told(z)
    assert found.kind == "logits"
    assert found.logits is z or np.array_equal(found.logits, z)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_probabilities_of_any_precision_become_their_logarithms(dtype: type) -> None:
    p = softmax(logits()).astype(dtype).astype(np.float64)
    found = told(p)
    assert found.kind == "probabilities"
    np.testing.assert_allclose(np.exp(found.logits), np.maximum(p, 2.0**-25 if dtype is np.float16 else 1e-12))


def test_log_probabilities_serve_as_logits_and_minus_infinity_is_the_logarithm_of_zero() -> None:
    log_p = np.log(softmax(logits()))
    np.testing.assert_array_equal(told(log_p).logits, log_p)
    log_p[:, 0], log_p[:, 1:] = -np.inf, np.log(1 / 3)
    found = told(log_p)
    assert found.kind == "log-probabilities"
    assert found.logits[0, 0] == pytest.approx(np.log(1e-12))


def test_minus_infinity_in_logits_rules_a_class_out() -> None:
    z = logits()
    z[3, 1] = -np.inf
    assert told(z).kind == "logits"
    assert told(z).logits[3, 1] == -np.inf
    z[7] = -np.inf
    with pytest.raises(DataError, match=r"preds.npz: 1 rows rule out every class .*the first is row 8"):
        told(z)


def test_percent_is_divided_and_said() -> None:
    p = softmax(logits())
    found = told(100 * p)
    assert found.kind == "percent"
    assert "divided by 100" in found.notes[0]
    np.testing.assert_allclose(np.exp(found.logits), p, atol=1e-12)


def test_sigmoids_with_one_label_a_row_are_asked_for() -> None:
    p = sigmoid(logits())
    with pytest.raises(DataError, match="between 0 and 1, but rows add up to .*--kind sigmoid"):
        told(p)
    np.testing.assert_allclose(told(p, asked="sigmoid").logits, logits(), atol=1e-9)
    np.testing.assert_allclose(told(p, outcome="independent").logits, logits(), atol=1e-9)


def test_rows_that_all_add_up_to_less_lack_columns() -> None:
    p = softmax(logits())
    p = 0.8 * p / p.sum(axis=1, keepdims=True)
    with pytest.raises(DataError, match=r"adds up to 0\.8, not 1: columns of some classes are missing"):
        told(p)


def test_a_row_in_a_thousand_is_named_and_not_averaged_away() -> None:
    p = softmax(logits(1000))
    p[412] *= 1.4
    with pytest.raises(DataError, match=r"1 of 1,000 rows .*row 413"):
        told(p)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused_with_its_row(bad: float) -> None:
    z = logits()
    z[7, 0] = bad
    with pytest.raises(DataError, match="first is row 8"):
        told(z)


def test_decisions_are_no_probabilities() -> None:
    with pytest.raises(DataError, match="only 0 and 1"):
        told(np.eye(4)[np.arange(60) % 4])


def test_one_column_is_the_probability_of_class_one_or_its_logit() -> None:
    s = logits(60, 1)
    np.testing.assert_array_equal(told(s).logits, np.hstack([np.zeros_like(s), s]))
    found = told(sigmoid(s))
    np.testing.assert_allclose(found.logits, np.hstack([np.zeros_like(s), s]), atol=1e-9)


def test_the_winners_confidence_is_refused_as_one_column() -> None:
    p = sigmoid(np.abs(logits(60, 1)))
    with pytest.raises(DataError, match="confidence of the winner"):
        told(p)
    assert told(p, asked="probabilities").kind == "probabilities"


def test_a_margin_written_twice_is_halved() -> None:
    """scikit-learn's binary logits [-s, s] mean p = sigmoid(s), not softmax."""
    s = logits(60, 1)
    found = told(np.hstack([-s, s]))
    np.testing.assert_allclose(softmax(found.logits)[:, 1], sigmoid(s)[:, 0], atol=1e-12)
    assert "halved" in found.notes[0]


def test_few_rows_tell_nothing() -> None:
    with pytest.raises(DataError, match="19 rows are too few"):
        told(logits(19))
    assert told(logits(19), asked="logits").kind == "logits"
    assert told(logits(20)).kind == "logits"


@pytest.mark.parametrize(
    ("values", "asked", "says"),
    [
        (softmax(logits()), "logits", "are probabilities, not logits"),
        (logits(), "probabilities", "are no probabilities"),
        (logits(), "percent", "no percent"),
        (logits(), "log-probabilities", "no log-probabilities"),
        (logits(), "sigmoid", r"outside of 0\.\.1"),
    ],
)
def test_what_is_asked_for_and_cannot_be_is_refused(values: Matrix, asked: Kind, says: str) -> None:
    with pytest.raises(DataError, match=says):
        told(values, asked=asked)


def test_rounding_below_zero_is_not_taken_for_logits() -> None:
    p = softmax(logits())
    p[:, 0] -= 1e-7
    p[0] = [-1e-7, 0.5, 0.25, 0.25 + 1e-7]
    with pytest.raises(DataError, match=r"clip"):
        told(p)


def test_rounded_zeros_stand_for_half_the_resolution() -> None:
    p = softmax(4 * logits(500)).round(2)
    found = told(p)
    assert np.exp(found.logits.min()) == pytest.approx(0.005)
    assert found.rounded is not None
    assert found.rounded.zeros == (p == 0).mean()
    assert found.rounded.hides


def test_softmax_with_several_labels_is_a_contradiction() -> None:
    with pytest.raises(DataError, match="exclude one another"):
        told(softmax(logits()), outcome="independent")
