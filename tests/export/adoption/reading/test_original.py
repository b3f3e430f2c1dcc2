from __future__ import annotations

import numpy as np
import pytest

from calibrant.export.adoption.reading.original import as_probabilities, deployed

Z = np.array([[0.0, np.log(3.0)], [np.log(4.0), 0.0]])
P = np.array([[0.25, 0.75], [0.8, 0.2]])


@pytest.mark.parametrize(
    ("values", "kind"),
    [(Z, "logits"), (P, "probabilities"), (100 * P, "percent"), (np.log(P), "log-probabilities"),
     (P[:, 1:], "sigmoid"), (np.diff(Z), "logits")],
)  # fmt: skip
def test_every_kind_as_probabilities(values: np.ndarray, kind: str) -> None:
    np.testing.assert_allclose(as_probabilities(values, kind, 2), P, atol=1e-12)


def test_sigmoids_are_compared_one_by_one() -> None:
    """sigmoid(log 3) = 3/4."""
    np.testing.assert_allclose(deployed(np.full((1, 3), np.log(3.0)), "sigmoid"), 0.75)
