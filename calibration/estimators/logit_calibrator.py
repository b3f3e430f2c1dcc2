"""A calibrator as an estimator: logits in, calibrated probabilities or logits out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from calibrant.calibration.calibrators import Calibrator
from calibrant.calibration.calibrators import fit as fit_calibrator
from calibrant.calibration.estimators.scores import fit_options
from calibrant.calibration.softmax import softmax
from calibrant.errors import FormatError

FORMAT_VERSION = 1
Matrix = NDArray[np.float64]


class LogitCalibrator(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """fit(logits, y), then predict_proba(logits) or transform(logits), which gives the calibrated logits.

    logits: (N, C), a column for each class in the order of the sorted labels; where there are more columns than labels,
    the labels are numbers of columns. Tensors come back as tensors, pandas as pandas. method and options: as of
    `calibrant calibrate`.
    """

    def __init__(self, method: str = "temperature", *, options: Mapping[str, Any] | None = None) -> None:
        self.method = method
        self.options = options

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LogitCalibrator:
        check_classification_targets(to_numpy(y))
        z, y = validate_data(self, to_numpy(X), to_numpy(y), dtype=(np.float64, np.float32), ensure_min_samples=2)
        if z.shape[1] < 2:
            raise ValueError("n_features = 1, but logits need one column for each class, two at least")
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, z)
        if weights is not None and not weights.any():
            raise ValueError("all sample weights are zero")
        self.classes_, labels = self._columns(np.asarray(y), z.shape[1])
        counted = labels if weights is None else labels[weights > 0]
        if len(np.unique(counted)) < 2:
            raise ValueError("the rows that count are all of one class; a calibrator needs two")
        self.calibrator_ = fit_calibrator(
            self.method, z, labels, weights=weights, **fit_options(self.method, self.options)
        )
        return self

    @staticmethod
    def _columns(y: NDArray[Any], columns: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The class of each column, and the column of each label."""
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) == columns:
            return classes, labels
        if len(classes) > columns:
            raise ValueError(f"{len(classes)} classes in y, but the logits have {columns} columns")
        whole = y.dtype.kind in "iub" or (y.dtype.kind == "f" and bool((y == np.floor(y)).all()))
        if whole and classes[0] >= 0 and classes[-1] < columns:
            return np.arange(columns).astype(y.dtype), y.astype(np.int64)
        raise ValueError(
            f"the logits have {columns} columns, y has {len(classes)} classes, and their names do not say whose "
            "columns are which; give y as numbers of columns"
        )

    @property
    def temperature_(self) -> float:
        """Of a map that is a temperature."""
        check_is_fitted(self)
        return float(self.calibrator_.parameters["temperature"])

    def transform(self, X: Any) -> Any:
        """Calibrated logits (N, C)."""
        z = self._checked(X)
        return self._like(X, self.calibrator_.logits(z))

    def predict_proba(self, X: Any) -> Any:
        """Calibrated probabilities (N, C)."""
        z = self._checked(X)
        return self._like(X, softmax(self.calibrator_.logits(z)))

    def predict(self, X: Any) -> NDArray[Any]:
        z = self._checked(X)
        return self.classes_[self.calibrator_.logits(z).argmax(axis=1)]  # type: ignore[no-any-return]

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        check_is_fitted(self)
        return np.asarray([str(c) for c in self.classes_], object)

    def _checked(self, X: Any) -> Matrix:
        check_is_fitted(self)
        found: Matrix = validate_data(self, to_numpy(X), dtype=(np.float64, np.float32), reset=False)
        return found

    def _like(self, given: Any, values: Matrix) -> Any:
        if hasattr(given, "detach"):
            import torch

            kind = given.dtype if given.is_floating_point() else torch.float32
            return torch.from_numpy(values).to(device=given.device, dtype=kind)
        if hasattr(given, "columns") and hasattr(given, "index"):
            return type(given)(values, index=given.index, columns=self.get_feature_names_out())
        return values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # any numbers are taken for logits: how good they are is not its doing
        return tags

    # ---- without pickle ----

    def to_json(self) -> str:
        check_is_fitted(self)
        return json.dumps(
            {
                "kind": "logit-calibrator",
                "format_version": FORMAT_VERSION,
                "classes": self.classes_.tolist(),
                "options": dict(self.options or {}),
                "calibrator": self.calibrator_.to_dict(),
            },
            allow_nan=False,
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> LogitCalibrator:
        try:
            block = json.loads(text)
            if block["kind"] != "logit-calibrator" or block["format_version"] > FORMAT_VERSION:
                raise FormatError(f"is a {block['kind']} of format {block['format_version']}", fix="update calibrant")
            fitted = Calibrator.from_dict(block["calibrator"])
            made = cls(fitted.method, options=block["options"] or None)
            made.classes_, made.calibrator_ = np.asarray(block["classes"]), fitted
            made.n_features_in_ = fitted.classes
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"is no calibrator of logits ({error!r})") from None
        return made


def to_numpy(values: Any) -> Any:
    """Tensors as arrays; all else as it is."""
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    return (values.float() if values.is_floating_point() and values.element_size() < 4 else values).numpy()
