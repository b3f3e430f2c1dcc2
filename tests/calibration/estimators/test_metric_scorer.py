"""A scorer is the metric, larger being better."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.linear_model import LogisticRegression

from calibrant.calibration.estimators import scorer
from calibrant.calibration.metrics import accuracy, ece
from calibrant.calibration.metrics.table import METRICS

X = np.random.default_rng(0).normal(size=(120, 3))
Y = np.where(X[:, 0] + np.random.default_rng(1).normal(size=120) > 0, "yes", "no")
MODEL = LogisticRegression().fit(X, Y)
NUMBERS = (Y == "yes").astype(int)


def test_errors_are_negative_and_scores_are_not() -> None:
    p = MODEL.predict_proba(X)
    assert scorer("ece")(MODEL, X, Y) == -ece(p, NUMBERS)
    assert scorer("accuracy")(MODEL, X, Y) == accuracy(p, NUMBERS)
    w = np.arange(120.0)
    assert scorer("ece")(MODEL, X, Y, sample_weight=w) == -ece(p, NUMBERS, weights=w)


@pytest.mark.parametrize("key", [m.key for m in METRICS])
def test_every_metric_is_a_scorer(key: str) -> None:
    assert np.isfinite(scorer(key)(MODEL, X, Y))


def test_a_class_that_the_estimator_does_not_know_is_named() -> None:
    with pytest.raises(ValueError, match="'zzz'"):
        scorer("nll")(MODEL, X, np.array(["zzz"] * 120))
