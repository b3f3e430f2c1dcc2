"""Maps of independent labels: what made the rows is found again."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from calibrant.calibration.independent.fit import fit_labels, nll
from calibrant.errors import ConfigError, DataError

SLOPES, OFFSETS = np.array([0.4, 1.0, 2.0]), np.array([0.0, -1.0, 0.5])


def rows(n: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.5, (n, 3))
    p = 1 / (1 + np.exp(-(SLOPES * z + OFFSETS)))
    return z, (rng.random((n, 3)) < p).astype(np.int8)


def test_slope_and_offset_of_each_label_are_found() -> None:
    z, y = rows()
    found = fit_labels("vector", z, y)
    np.testing.assert_allclose(found.parameters["weights"], SLOPES, rtol=0.12)
    np.testing.assert_allclose(found.parameters["bias"], OFFSETS, atol=0.12)


def test_a_label_s_map_is_the_logistic_regression_of_it() -> None:
    """Beside scikit-learn; Platt's targets move 4,000 rows by less than 1e-2."""
    z, y = rows()
    found = fit_labels("vector", z, y)
    for k in range(3):
        other = LogisticRegression(C=np.inf, tol=1e-10).fit(z[:, [k]], y[:, k])
        assert found.parameters["weights"][k] == pytest.approx(other.coef_[0, 0], abs=1e-2)
        assert found.parameters["bias"][k] == pytest.approx(other.intercept_[0], abs=1e-2)


def test_one_temperature_is_the_best_one() -> None:
    z, y = rows()
    t = fit_labels("temperature", z, y).parameters["temperature"]
    at = [nll(z / (t * f), y, np.ones(len(z))) for f in (0.99, 1.0, 1.01)]
    assert at[1] < min(at[0], at[2])


def test_auto_takes_what_the_rows_need() -> None:
    z, y = rows()
    assert fit_labels("auto", z, y).method == "vector"
    rng = np.random.default_rng(1)
    plain = (rng.random((400, 3)) < 1 / (1 + np.exp(-z[:400] / 2))).astype(np.int8)
    assert fit_labels("auto", z[:400], plain).method != "vector"


def test_few_rows_of_a_label_take_the_common_temperature() -> None:
    z, y = rows(300)
    y[:, 2] = 0
    y[:4, 2] = 1
    found = fit_labels("vector", z, y)
    assert found.fit["few_rows"] == [2]
    assert found.parameters["weights"][2] == pytest.approx(
        1 / fit_labels("temperature", z, y).parameters["temperature"]
    )
    assert found.parameters["bias"][2] == 0


def test_rows_that_a_line_separates_stay_finite() -> None:
    z = np.concatenate([np.full((30, 1), -1.0), np.full((30, 1), 1.0)])
    y = (z > 0).astype(np.int8)
    found = fit_labels("vector", z, y)
    p = 1 / (1 + np.exp(-found.logits(np.array([[1.0]]))[0, 0]))
    assert p == pytest.approx(31 / 32, abs=1e-6)  # Platt's target


def test_other_base_rates_are_bayes_rule() -> None:
    """Twice the odds in use than in the rows: twice the odds of each answer."""
    z, y = rows()
    plain = fit_labels("vector", z, y)
    rates = y.mean(0)
    odds = 2 * rates / (1 - rates)
    moved = fit_labels("vector", z, y, target=(odds / (1 + odds)).tolist())
    np.testing.assert_allclose(np.asarray(moved.parameters["bias"]) - plain.parameters["bias"], np.log(2), atol=1e-9)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        fit_labels("vector", z, y, target=[0.5, 1.0, 0.5])
    with pytest.raises(ConfigError, match="2 base rates for 3 labels"):
        fit_labels("vector", z, y, target=[0.5, 0.5])


def test_what_cannot_be_fitted() -> None:
    z, y = rows(100)
    with pytest.raises(ConfigError, match="vector"):
        fit_labels("vectr", z, y)
    with pytest.raises(DataError, match="every known label is the same"):
        fit_labels("temperature", z, np.zeros_like(y))
    with pytest.raises(DataError, match="logits fall"):
        fit_labels("temperature", -z, y)
