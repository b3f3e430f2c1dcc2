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


@pytest.mark.parametrize(("full", "bias"), [(True, True), (False, True), (False, False)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_classes_first_give_what_rows_first_give(
    full: bool, bias: bool, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calibrant.calibration.calibrators.estimation import newton

    rng = np.random.default_rng(4)
    x, y, offset = rng.normal(0, 3, (700, 6)).astype(dtype), rng.integers(0, 6, 700), rng.normal(size=6)
    problem = newton.Problem.make(x, y, rng.uniform(0.1, 3, 700), offset, full, bias)
    t = rng.normal(size=42 if full else 12 if bias else 6)
    monkeypatch.setattr(newton, "_FEW_NUMBERS", 6 * 100)  # seven parts
    value, gradient, _ = problem.value_and_gradient(t)
    monkeypatch.setattr(newton, "_FEW", 0)
    other_value, other, _ = problem.value_and_gradient(t)
    close = 1e-12 if dtype is np.float64 else 1e-5
    assert value == pytest.approx(other_value, rel=close)
    assert gradient == pytest.approx(other, abs=close)
    second = problem.value_and_gradient(t, hessian=True)
    assert gradient == pytest.approx(second[1], abs=close)
