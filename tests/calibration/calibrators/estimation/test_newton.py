"""Both ways to the optimum."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import fit


def test_many_classes_take_the_first_order_path_to_the_same_optimum() -> None:
    from calibrant.calibration.calibrators.estimation import newton

    rng = np.random.default_rng(3)
    z = rng.normal(size=(400, 6))
    y = rng.integers(0, 6, 400)
    exact = fit("matrix", z, y, penalty=0.1)
    limit = newton.NEWTON_PARAMETERS
    try:
        newton.NEWTON_PARAMETERS = 0
        other = fit("matrix", z, y, penalty=0.1)
    finally:
        newton.NEWTON_PARAMETERS = limit
    assert other.fit["objective"] == pytest.approx(exact.fit["objective"], abs=1e-7)
