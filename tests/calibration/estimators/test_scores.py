"""Logits of an estimator are those whose softmax it means."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from calibrant.calibration.estimators.scores import logits_of
from calibrant.calibration.softmax import softmax

X = np.random.default_rng(0).normal(size=(90, 4))
THREE = np.array(["a", "b", "c"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.3)]
TWO = np.where(X[:, 0] + 0.4 * X[:, 2] > 0, "yes", "no")


@pytest.mark.parametrize("y", [TWO, THREE])
def test_softmax_of_a_logistic_regressions_logits_is_its_probability(y: np.ndarray) -> None:
    model = LogisticRegression().fit(X, y)
    np.testing.assert_allclose(softmax(logits_of(model, X, model.classes_)), model.predict_proba(X), atol=1e-12)


def test_zeros_of_a_forest_stand_for_half_a_vote() -> None:
    forest = RandomForestClassifier(10, random_state=0, max_depth=None).fit(X, THREE)
    p = forest.predict_proba(X)
    assert (p == 0).any()
    found = logits_of(forest, X, forest.classes_)
    assert np.exp(found[p == 0]) == pytest.approx(0.05)
    np.testing.assert_allclose(np.exp(found[p > 0]), p[p > 0])


def test_a_class_that_was_never_seen_is_ruled_out() -> None:
    model = LogisticRegression().fit(X[THREE != "b"], THREE[THREE != "b"])
    found = logits_of(model, X, np.array(["a", "b", "c"]))
    assert np.isneginf(found[:, 1]).all()
    np.testing.assert_allclose(softmax(found)[:, [0, 2]], model.predict_proba(X), atol=1e-12)


def test_margins_of_pairs_are_no_logits_of_classes() -> None:
    pairs = SVC(decision_function_shape="ovo").fit(X, THREE)
    with pytest.raises(ValueError, match="for pairs of 3 classes.*ovr"):
        logits_of(pairs, X, pairs.classes_)
