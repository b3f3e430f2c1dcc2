from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.label_shift.confusion import prior_by_confusion


def test_two_classes_by_hand() -> None:
    """Class 0 is called 0 in 80 %, class 1 in 30 %: of served rows called 0 in 50 %, 40 % are of class 0."""
    p = np.array([[1.0, 0.0]] * 8 + [[0.0, 1.0]] * 2 + [[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 7)
    labels = np.repeat([0, 1], 10)
    served = np.array([[1.0, 0.0], [0.0, 1.0]] * 50)
    found = prior_by_confusion(p, labels, served)
    assert found.prior == pytest.approx([0.4, 0.6], abs=2e-3)
    # singular values of [[.8, .3], [.2, .7]]: their product is the determinant .5, their squares add up to 1.26
    assert found.smallest == pytest.approx(np.sqrt((1.26 - np.sqrt(1.26**2 - 1)) / 2), abs=1e-3)


def test_the_variance_is_that_of_repeated_samples() -> None:
    rng = np.random.default_rng(5)
    found, said = [], []
    for _ in range(300):
        labels = np.repeat([0, 1, 2], [100, 60, 40])
        centre = np.eye(3) * 1.5
        p, served = (
            np.exp(centre[y] + rng.normal(size=(len(y), 3))) for y in (labels, rng.choice(3, 300, p=[0.2, 0.3, 0.5]))
        )
        p /= p.sum(axis=1, keepdims=True)
        served /= served.sum(axis=1, keepdims=True)
        answer = prior_by_confusion(p, labels, served)
        found.append(answer.prior)
        said.append(np.diag(answer.covariance))
    assert np.mean(found, axis=0) == pytest.approx([0.2, 0.3, 0.5], abs=0.02)
    assert np.std(found, axis=0) == pytest.approx(np.sqrt(np.mean(said, axis=0)), rel=0.15)


def test_the_two_classes_that_look_alike_are_named() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 50)
    p = rng.dirichlet(np.ones(3), 150) * 0.02
    p[:50, 0] += 1
    p[50:, 1:] += 0.5
    found = prior_by_confusion(p / p.sum(axis=1, keepdims=True), labels, p[:60])
    assert set(found.mixed) == {1, 2}
    assert found.smallest < 0.1
