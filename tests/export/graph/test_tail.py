"""The tail's out-of-distribution scores, where the classifier holds a folded map; by hand."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from calibrant.calibration.calibrators.steps import Affine
from calibrant.export.checks.parity import session
from calibrant.export.graph.tail import Ood, Tail, standalone

W, B = np.array([[1.0, -2.0], [0.5, 1.0], [0.0, 3.0]]), np.array([0.1, -0.4, 1.0])
FEATURES = np.array([[1.0, 2.0], [-0.5, 0.25]], np.float32)


def score(ood: Ood) -> NDArray[np.float32]:
    fold = Affine(np.array([0.5, 2.0, 1.5]), np.array([1.0, -0.7, 0.3]))
    tail = Tail(3, "features", W, B, [fold], ("logits", "ood_score"), feature_dim=2, ood=ood)
    run = session(standalone(tail))
    logits, found = run.run(["logits", "ood_score"], {"features": FEATURES})
    assert logits == pytest.approx((FEATURES @ W.T + B) * fold.a + fold.c, abs=1e-5)
    return found  # type: ignore[no-any-return]


def test_the_energy_is_of_the_logits_before_the_map_that_was_folded() -> None:
    z = FEATURES @ W.T + B
    assert score(Ood("energy")) == pytest.approx(-np.log(np.exp(z).sum(axis=1, keepdims=True)), abs=1e-5)


def test_a_feature_norm_is_measured_in_spreads_of_training() -> None:
    assert score(Ood("feature-norm", mu=4.0, sd=0.5))[:, 0] == pytest.approx([1 / 0.501, 3.25 / 0.501], rel=1e-5)
