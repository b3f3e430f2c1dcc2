"""When a deployed file passes for the network: probabilities and logits, each within its tolerance."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.softmax import softmax
from calibrant.export.checks.parity import Expected, _check

Z = np.array([[2.0, 0.0, -1.0], [0.0, 1.0, 3.0]])


@pytest.mark.parametrize(
    ("moved", "passes"),
    [
        (np.zeros((2, 3)), True),
        (np.full((2, 3), 1e-3), False),  # the same probabilities, and other logits
        (np.array([[1e-4, 0, 0], [0, 0, 0]]), False),  # logits near enough, and other probabilities
    ],
)
def test_both_are_compared(moved: np.ndarray, passes: bool) -> None:
    expected = Expected(Z, np.ones(2, bool))
    found = _check("random", Z + moved, softmax(Z + moved), expected, 2, "all", 1, (1e-5, 2e-4), 1.0)
    assert (found.passed, found.top1_equal) == (passes, True)


def test_what_is_no_number_does_not_pass_in_a_row_that_is_not_compared_either() -> None:
    q = softmax(Z)
    q[1] = np.nan
    expected = Expected(Z, np.array([True, False]))
    assert not _check("random", Z, q, expected, 2, "all", 1, (1e-5, 2e-4), 1.0).passed
