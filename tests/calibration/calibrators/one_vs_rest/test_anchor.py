"""A temperature beside maps of single probabilities: no zero is left, and few rows leave the temperature in charge."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import Calibrator, fit, metrics
from calibrant.calibration.calibrators.one_vs_rest.anchor import prior
from calibrant.calibration.softmax import softmax
from calibrant.errors import FormatError


def drawn(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 5)) * 4
    return z, (softmax(z / 2).cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)


@pytest.mark.parametrize("method", ["isotonic", "histogram", "beta"])
def test_fifty_rows_cost_little_beside_a_temperature(method: str) -> None:
    z, y = drawn(50)
    fresh, truth = drawn(4000, 1)
    temperature = metrics.nll(fit("temperature", z, y).probabilities(fresh), truth)
    beside = metrics.nll(fit(method, z, y).probabilities(fresh), truth)
    assert beside <= temperature + 0.01
    if method != "beta":
        assert metrics.nll(fit(method, z, y, mixture=False).probabilities(fresh), truth) > temperature + 0.1


def test_the_probabilities_are_the_sum_of_both() -> None:
    z, y = drawn(400)
    found = fit("isotonic", z, y)
    share, t = found.parameters["anchor"]["share"], found.parameters["anchor"]["temperature"]
    alone = Calibrator("isotonic", 5, {k: v for k, v in found.parameters.items() if k != "anchor"})
    expected = share * softmax(z / t) + (1 - share) * alone.probabilities(z)
    assert found.probabilities(z) == pytest.approx(expected, abs=1e-9)


def test_a_damaged_share_is_refused() -> None:
    z, y = drawn(100)
    block = fit("histogram", z, y).to_dict()
    block["parameters"]["anchor"]["share"] = 1.5
    with pytest.raises(FormatError, match="share"):
        Calibrator.from_dict(block)


def test_a_map_that_may_say_0_gets_a_smaller_part_of_the_pseudo_rows_below_a_hundred_rows() -> None:
    for rows, zeros, part in ((50, True, 0.05), (100, True, 0.1), (5000, True, 0.1), (50, False, 0.1)):
        assert prior(rows, zeros=zeros) == pytest.approx([1 - part, part])


@pytest.mark.parametrize("method", ["isotonic", "histogram"])
def test_a_map_that_says_no_more_than_the_temperature_gets_hardly_a_share_of_fifty_rows(method: str) -> None:
    shares = [fit(method, *drawn(50, seed)).parameters["anchor"]["share"] for seed in range(6)]
    assert min(shares) > 0.94
    assert fit(method, *drawn(50), weights=np.full(50, 3.0)).parameters["anchor"]["share"] == pytest.approx(shares[0])
