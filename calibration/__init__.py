"""Calibration: metrics with their uncertainty, calibrators, the prior adjustment, prediction sets and reports."""

from __future__ import annotations

from calibrant.calibration.calibrators import METHODS, Calibrator, fit
from calibrant.calibration.evaluation import Evaluation, evaluate
from calibrant.calibration.intervals.binned import Measured

__all__ = ["METHODS", "Calibrator", "Evaluation", "Measured", "evaluate", "fit"]
