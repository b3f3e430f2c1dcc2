from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.label_shift.bias_map import fit_bias_map
from calibrant.calibration.softmax import log_softmax


def _rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels drawn from softmax(.5 log p + (1, 0, -1)), so that these are what a fit must find."""
    rng = np.random.default_rng(seed)
    log_p = log_softmax(3 * rng.normal(size=(n, 3)))
    q = np.exp(log_softmax(0.5 * log_p + np.array([1.0, 0.0, -1.0])))
    labels = (rng.random(n)[:, None] > q.cumsum(axis=1)).sum(axis=1)
    return log_p, labels


def test_the_parameters_that_drew_the_labels_are_found() -> None:
    log_p, labels = _rows(20_000)
    found = fit_bias_map(log_p, labels)
    assert found.parameters[0] == pytest.approx(0.5, abs=0.02)
    assert found.parameters[1:] - found.parameters[2] == pytest.approx([1, 0, -1], abs=0.1)
    assert found.shares == pytest.approx(np.bincount(labels) / 20_000)


def test_the_fitted_map_predicts_each_class_as_often_as_it_occurs() -> None:
    log_p, labels = _rows(5_000)
    found = fit_bias_map(log_p, labels)
    assert found.probabilities(log_p).mean(axis=0) == pytest.approx(found.shares, abs=1e-3)


def test_the_covariance_is_that_of_repeated_samples() -> None:
    """Rows of each class are fixed in number, as in the sandwich: samples are drawn class by class."""
    log_p, labels = _rows(60_000)
    rng = np.random.default_rng(1)
    found, said = [], []
    by_class = [np.flatnonzero(labels == k) for k in range(3)]
    for _ in range(200):
        rows = np.concatenate([rng.choice(b, 200, replace=False) for b in by_class])
        fitted = fit_bias_map(log_p[rows], labels[rows])
        found.append(fitted.parameters)
        said.append(np.diag(fitted.covariance))
    # 200 samples: the standard deviation of a standard deviation is 5 %.
    assert np.std(found, axis=0) == pytest.approx(np.sqrt(np.mean(said, axis=0)), rel=0.2)
