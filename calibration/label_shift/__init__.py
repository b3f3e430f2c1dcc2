"""The class prior of unlabelled rows, estimated from what a model says about them: label shift."""

from __future__ import annotations

from calibrant.calibration.label_shift.estimate import PriorEstimate, PriorEstimator, estimate_prior

__all__ = ["PriorEstimate", "PriorEstimator", "estimate_prior"]
