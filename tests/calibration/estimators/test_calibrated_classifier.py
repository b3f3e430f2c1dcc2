"""A drop-in beside CalibratedClassifierCV."""

from __future__ import annotations

import json
import pickle
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.8")
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from calibrant.calibration.estimators import CalibratedClassifier, scorer
from calibrant.errors import FormatError


def rows(classes: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = make_classification(300, 12, n_informative=6, n_classes=classes, random_state=0)
    return x, np.array(["ant", "bee", "cat"])[y]


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("estimator", [LogisticRegression(), LinearSVC(), GaussianNB()], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("classes", [2, 3])
def test_temperature_equals_that_of_scikit_learn_on_the_same_folds(
    estimator: object, classes: int, ensemble: bool
) -> None:
    """Ours finds the root of the derivative, theirs a minimum to 64 spacings of log T: 1e-8 apart, measured."""
    x, y = rows(classes)
    theirs = CalibratedClassifierCV(estimator, method="temperature", ensemble=ensemble, cv=5).fit(x, y)
    ours = CalibratedClassifier(estimator, method="temperature", ensemble=ensemble, cv=5).fit(x, y)
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-6)
    assert list(ours.predict(x)) == list(theirs.predict(x))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the checks hand over what warns
def test_check_estimator_finds_nothing() -> None:
    """11 s."""
    found = check_estimator(CalibratedClassifier(), on_fail=None, on_skip=None)
    assert [check["check_name"] for check in found if check["status"] == "failed"] == []
    assert Counter(check["status"] for check in found)["passed"] >= 55


def test_the_map_is_fitted_on_rows_that_the_estimator_has_not_seen() -> None:
    """A nearest neighbour is sure of every row it has seen and of no other."""
    from sklearn.neighbors import KNeighborsClassifier

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 5)), rng.integers(0, 2, 300)
    model = CalibratedClassifier(KNeighborsClassifier(1), cv=5).fit(x, y)
    assert model.predict_proba(x).max() < 0.75


def test_a_frozen_estimator_is_only_calibrated() -> None:
    x, y = rows(3)
    fitted = LogisticRegression().fit(x[:150], y[:150])
    model = CalibratedClassifier(FrozenEstimator(fitted), cv=3).fit(x[150:], y[150:])
    assert model.calibrated_classifiers_[0].estimator.estimator is fitted
    theirs = CalibratedClassifierCV(FrozenEstimator(fitted), method="temperature", cv=3).fit(x[150:], y[150:])
    np.testing.assert_allclose(model.predict_proba(x), theirs.predict_proba(x), atol=1e-6)


def test_a_weight_counts_as_so_many_rows() -> None:
    x, y = rows(3)
    copies = np.arange(300) % 3
    again = np.repeat(np.arange(300), copies)
    part = np.arange(300) // 3 % 3

    def fitted(x: np.ndarray, y: np.ndarray, part: np.ndarray, weights: np.ndarray | None) -> CalibratedClassifier:
        folds = [(np.flatnonzero(part != k), np.flatnonzero(part == k)) for k in range(3)]
        estimator = LogisticRegression(tol=1e-10, max_iter=1000)
        # Without a penalty, whose strength goes by the effective number of weighted rows.
        return CalibratedClassifier(estimator, method="vector", cv=folds, options={"penalty": 0}).fit(x, y, weights)

    weighted, repeated = fitted(x, y, part, copies), fitted(x[again], y[again], part[again], None)
    np.testing.assert_allclose(weighted.predict_proba(x), repeated.predict_proba(x), atol=1e-5)
    assert weighted.calibrated_classifiers_[0].calibrator.method == "vector"


def test_groups_reach_the_folds() -> None:
    x, y = rows(2)
    with pytest.raises(ValueError, match="groups"):
        CalibratedClassifier(LogisticRegression(), cv=GroupKFold(3)).fit(x, y)
    groups = np.arange(300) // 10
    folds = list(GroupKFold(3).split(x, y, groups))
    expected = CalibratedClassifier(LogisticRegression(), cv=folds).fit(x, y)
    found = CalibratedClassifier(LogisticRegression(), cv=GroupKFold(3)).fit(x, y, groups=groups)
    np.testing.assert_array_equal(found.predict_proba(x), expected.predict_proba(x))


def test_it_stands_in_pipelines_searches_and_clones() -> None:
    x, y = rows(2)
    model = CalibratedClassifier(make_pipeline(StandardScaler(), LogisticRegression()), cv=3)
    assert clone(model).get_params()["method"] == "temperature"
    search = GridSearchCV(model, {"method": ["temperature", "beta"]}, scoring=scorer("nll"), cv=3).fit(x, y)
    assert search.best_score_ < 0
    assert cross_val_score(model, x, y, scoring=scorer("accuracy"), cv=3).mean() > 0.6


def test_it_comes_back_from_json_and_from_pickle() -> None:
    x, y = rows(3)
    model = CalibratedClassifier(GaussianNB(), cv=4, ensemble=True).fit(x, y)
    estimators = [part.estimator for part in model.calibrated_classifiers_]
    again = CalibratedClassifier.from_json(model.to_json(), estimators)
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(x), model.predict(x))
    with pytest.raises(FormatError, match="4 calibrators"):
        CalibratedClassifier.from_json(model.to_json(), estimators[0])
    block = json.loads(model.to_json())
    with pytest.raises(FormatError, match="update calibrant"):
        CalibratedClassifier.from_json(json.dumps({**block, "format_version": 99}), estimators)
    with pytest.raises(FormatError, match="no calibrated classifier"):
        CalibratedClassifier.from_json("[]", estimators)


def test_classes_too_small_for_the_folds_are_named() -> None:
    x, y = rows(2)
    y[:] = "ant"
    y[:3] = "bee"
    with pytest.raises(ValueError, match='"bee" has 3 rows, which 5 folds cannot share; use cv=3'):
        CalibratedClassifier(cv=5).fit(x, y)
    assert len(CalibratedClassifier(LogisticRegression(), ensemble=True).fit(x, y).calibrated_classifiers_) == 3
    with pytest.raises(ValueError, match="one row"):
        CalibratedClassifier().fit(x[2:], y[2:])
    with pytest.raises(ValueError, match="1 class"):
        CalibratedClassifier().fit(x[3:], y[3:])
