"""Calibration as scikit-learn has it: a classifier around a classifier, a calibrator of logits, scorers.

from calibrant.calibration.estimators import CalibratedClassifier
CalibratedClassifier(LinearSVC(), method="temperature", cv=5).fit(x, y).predict_proba(new)

Importing this room imports scikit-learn; nothing else of Calibrant does.
"""

from __future__ import annotations

from calibrant.calibration.estimators.calibrated_classifier import CalibratedClassifier
from calibrant.calibration.estimators.logit_calibrator import LogitCalibrator
from calibrant.calibration.estimators.metric_scorer import MetricScorer, scorer

__all__ = ["CalibratedClassifier", "LogitCalibrator", "MetricScorer", "scorer"]
