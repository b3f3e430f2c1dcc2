"""How finely values are written is seen from the values, whatever the format."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.artifacts.foreign.precision import precision_of


def distributions(rows: int = 300, classes: int = 10) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.full(classes, 0.2), rows)


@pytest.mark.parametrize("decimals", [2, 3, 4, 6])
def test_decimals_are_seen_in_either_precision(decimals: int) -> None:
    p = distributions().round(decimals)
    for given in (p, p.astype(np.float32).astype(np.float64)):
        found = precision_of(given)
        assert found.name == f"{decimals} decimals"
        assert found.floor == 0.5 * 10**-decimals
        assert found.row_sum == pytest.approx(max(1e-5, min(0.1, 5 * 10**-decimals)))


def test_votes_of_fifty_trees_are_multiples_of_a_fiftieth() -> None:
    votes = np.random.default_rng(0).multinomial(48, [0.5, 0.3, 0.2], 400) / 48
    found = precision_of(votes)
    assert found.name == "multiples of 1/48"
    assert found.floor == pytest.approx(0.5 / 48)


def test_a_floating_point_type_is_told_by_its_bits() -> None:
    p = distributions()
    assert precision_of(p).name == "float64"
    assert precision_of(p.astype(np.float32).astype(float)).name == "float32"
    assert precision_of(p.astype(np.float16).astype(float)).name == "float16"
    bits = p.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    assert precision_of(bits.view(np.float32).astype(float)).name == "bfloat16"
    assert precision_of(p).floor == 1e-12


def test_rows_of_each_type_lie_within_what_is_allowed() -> None:
    for classes in (2, 10, 1000):
        p = distributions(200, classes)
        for dtype in (np.float16, np.float32, np.float64):
            q = p.astype(dtype).astype(np.float64)
            assert np.abs(q.sum(axis=1) - 1).max() < precision_of(q).row_sum
