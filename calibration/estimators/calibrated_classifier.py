"""A classifier whose probabilities are calibrated by cross-fitting, as scikit-learn's CalibratedClassifierCV."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.svm import LinearSVC
from sklearn.utils import _safe_indexing, column_or_1d, get_tags, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from calibrant.calibration.calibrators import Calibrator
from calibrant.calibration.calibrators import fit as fit_calibrator
from calibrant.calibration.estimators.scores import (
    Matrix,
    fit_options,
    floor_of,
    log_probabilities,
    logits_of,
    uses_probabilities,
)

FORMAT_VERSION = 1


@dataclass(frozen=True)
class CalibratedEstimator:
    """A fitted estimator and the map behind its logits. `floor`: of probabilities that are zero."""

    estimator: Any
    calibrator: Calibrator
    floor: float | None

    def predict_proba(self, rows: Any, classes: NDArray[Any]) -> Matrix:
        return self.calibrator.probabilities(logits_of(self.estimator, rows, classes, floor=self.floor))


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Calibrates the probabilities of `estimator` by any method of Calibrant, on rows that it was not fitted on.

    estimator: any classifier (default LinearSVC); a FrozenEstimator is only calibrated. cv: as everywhere in
    scikit-learn; None is five folds, or as many as the rarest class has rows. method: temperature, vector,
    matrix, dirichlet, beta, isotonic, auto ... with its `options`.
    ensemble: False (the default here) fits one map on the held-out logits of all folds and the estimator on all rows;
    True keeps an estimator and a map per fold and averages their probabilities; "auto" is True but for a
    FrozenEstimator, as in CalibratedClassifierCV, whose method="temperature" is equal on the same folds.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        method: str = "temperature",
        cv: Any = None,
        ensemble: bool | Literal["auto"] = False,
        options: Mapping[str, Any] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.ensemble = ensemble
        self.options = options
        self.n_jobs = n_jobs

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None, **fit_params: Any
    ) -> CalibratedClassifier:
        """`groups` are for a `cv` that keeps rows together; `fit_params` for the estimator's fit."""
        check_classification_targets(y)
        X, y = indexable(X, column_or_1d(y, warn=True))
        estimator = LinearSVC(random_state=0) if self.estimator is None else self.estimator
        self.classes_, encoded = np.unique(np.asarray(y), return_inverse=True)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        cv = check_cv(self._folds(encoded), y, classifier=True)
        folds = list(cv.split(X, y, groups))
        takes_weights = weights is not None and "sample_weight" in signature(estimator.fit).parameters

        def fitted(rows: Any) -> Any:
            more = {"sample_weight": _safe_indexing(weights, rows)} if takes_weights else {}
            return clone(estimator).fit(_safe_indexing(X, rows), _safe_indexing(y, rows), **more, **fit_params)

        parts = Parallel(n_jobs=self.n_jobs)(delayed(fitted)(train) for train, _ in folds)
        scores = [self._scores(e, _safe_indexing(X, test)) for e, (_, test) in zip(parts, folds, strict=True)]
        floor = floor_of(scores) if uses_probabilities(parts[0]) else None
        if floor is not None:
            scores = [log_probabilities(p, floor=floor) for p in scores]
        ensemble = not isinstance(estimator, FrozenEstimator) if self.ensemble == "auto" else self.ensemble
        judged = [test for _, test in folds]
        if ensemble:
            maps = [self._map(z, encoded[test], weights, test) for z, test in zip(scores, judged, strict=True)]
            pairs = list(zip(parts, maps, strict=True))
        else:
            test = np.concatenate(judged)
            every = np.arange(len(encoded))
            pairs = [(fitted(every), self._map(np.concatenate(scores), encoded[test], weights, test))]
        self.calibrated_classifiers_ = [CalibratedEstimator(e, c, floor) for e, c in pairs]
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(pairs[0][0], name):
                setattr(self, name, getattr(pairs[0][0], name))
        return self

    def _scores(self, estimator: Any, rows: Any) -> Matrix:
        """Logits, or probabilities in the columns of all classes: their floor is seen from all folds together."""
        if not uses_probabilities(estimator):
            return logits_of(estimator, rows, self.classes_)
        found = np.zeros((len(p := np.asarray(estimator.predict_proba(rows), np.float64)), len(self.classes_)))
        found[:, np.searchsorted(self.classes_, estimator.classes_)] = p
        return found

    def _map(
        self, logits: Matrix, labels: NDArray[np.int64], weights: NDArray[np.float64] | None, rows: NDArray[np.intp]
    ) -> Calibrator:
        return fit_calibrator(
            self.method,
            logits,
            labels,
            weights=None if weights is None else weights[rows],
            **fit_options(self.method, self.options),
        )

    def _folds(self, encoded: NDArray[np.int64]) -> Any:
        """`cv`; where that is None five folds, or as many as the rarest class has rows."""
        counts = np.bincount(encoded)
        if len(counts) < 2:
            raise ValueError(f"y holds {len(counts)} class, and a classifier needs two")
        if counts.min() < 2:
            raise ValueError(f'class "{self.classes_[counts.argmin()]}" has one row, which cannot be held out')
        if self.cv is None:
            return min(5, int(counts.min()))
        folds = self.cv if isinstance(self.cv, int) else getattr(self.cv, "n_splits", 0)
        if counts.min() < folds:
            raise ValueError(
                f'class "{self.classes_[counts.argmin()]}" has {counts.min()} rows, which {folds} folds cannot share; '
                f"use cv={counts.min()} or fewer"
            )
        return self.cv

    def predict_proba(self, X: Any) -> Matrix:
        """Calibrated probabilities (N, C)."""
        check_is_fitted(self)
        parts = [part.predict_proba(X, self.classes_) for part in self.calibrated_classifiers_]
        return np.mean(parts, axis=0)  # type: ignore[no-any-return]

    def predict(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]  # type: ignore[no-any-return]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = get_tags(LinearSVC() if self.estimator is None else self.estimator).input_tags.sparse
        return tags

    # ---- without pickle ----

    def to_json(self) -> str:
        """The maps and what belongs to them. The estimators are not in it: keep them as their own library does."""
        check_is_fitted(self)
        return json.dumps(
            {
                "kind": "calibrated-classifier",
                "format_version": FORMAT_VERSION,
                "method": self.method,
                "options": dict(self.options or {}),
                "classes": self.classes_.tolist(),
                "floor": self.calibrated_classifiers_[0].floor,
                "calibrators": [part.calibrator.to_dict() for part in self.calibrated_classifiers_],
            },
            allow_nan=False,
        )

    @classmethod
    def from_json(cls, text: str | bytes, estimator: Any) -> CalibratedClassifier:
        """The classifier again, around a fitted estimator (with `ensemble` a list of them, in their order)."""
        from calibrant.errors import FormatError

        try:
            block = json.loads(text)
            if block["kind"] != "calibrated-classifier" or block["format_version"] > FORMAT_VERSION:
                raise FormatError(f"is a {block['kind']} of format {block['format_version']}", fix="update calibrant")
            maps = [Calibrator.from_dict(c) for c in block["calibrators"]]
            estimators = list(estimator) if isinstance(estimator, Sequence) else [estimator]
            if len(estimators) != len(maps):
                raise FormatError(f"holds {len(maps)} calibrators, for as many estimators; given are {len(estimators)}")
            made = cls(estimators[0], method=block["method"], options=block["options"], ensemble=len(maps) > 1)
            made.classes_ = np.asarray(block["classes"])
            made.calibrated_classifiers_ = [
                CalibratedEstimator(e, c, block["floor"]) for e, c in zip(estimators, maps, strict=True)
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"is no calibrated classifier ({error!r})") from None
        return made
