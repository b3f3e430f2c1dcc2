"""Metrics as scikit-learn's scorers: `cross_val_score(model, x, y, scoring=scorer("ece"))`."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant.calibration.metrics.table import Metric, metric


class MetricScorer:
    """scorer(estimator, X, y) of a metric on predict_proba; larger is better, so errors come out negative."""

    def __init__(self, record: Metric) -> None:
        self.metric = record
        self.sign = 1.0 if record.better == "higher" else -1.0

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        probabilities = np.asarray(estimator.predict_proba(X), np.float64)
        classes = np.asarray(estimator.classes_)
        given = np.asarray(y)
        labels = np.minimum(np.searchsorted(classes, given), len(classes) - 1)
        strange = classes[labels] != given
        if strange.any():
            raise ValueError(f"y holds {given[strange][0]!r}, a class that the estimator has never seen")
        weights = {} if sample_weight is None else {"weights": sample_weight}
        return self.sign * float(self.metric.function(probabilities, labels, **weights))

    def __repr__(self) -> str:
        return f"scorer({self.metric.key!r})"


def scorer(key: str) -> MetricScorer:
    """By the name of any metric: ece, nll, brier, classwise_ece, smooth_ece, aurc, balanced_accuracy ..."""
    return MetricScorer(metric(key))
