"""Which bin a row falls into, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.statistics.bins import equal_mass, equal_mass_index, equal_width, equal_width_index
from calibrant.errors import ConfigError


def test_bins_are_open_below_and_closed_above_and_zero_goes_to_the_first() -> None:
    assert equal_width_index(np.array([0.0, 0.2, 0.20001, 0.4, 1.0]), 5).tolist() == [0, 0, 1, 1, 4]


def test_an_edge_in_float32_lies_where_it_does_in_float64() -> None:
    for j in range(1, 15):
        edge = np.array([j / 15])
        assert equal_width_index(edge.astype(np.float32), 15) == equal_width_index(edge, 15) == j - 1


def test_equal_mass_gives_what_is_left_over_to_the_first_bins() -> None:
    confidence = np.array([0.5, 0.1, 0.4, 0.2, 0.3])
    assert equal_mass_index(confidence, 3).tolist() == [2, 0, 1, 0, 1]


def test_a_weighted_row_goes_to_the_bin_that_holds_its_middle() -> None:
    """Weights 1, 3, 1/2 of 4.5 in two bins of 2.25: the middle of the second row lies at 2.5."""
    confidence, weights = np.array([0.1, 0.2, 0.3]), np.array([1.0, 3.0, 0.5])
    assert equal_mass_index(confidence, 2, weights).tolist() == [0, 1, 1]
    table = equal_mass(confidence, np.array([True, False, True]), 2, weights)
    assert table.weight.tolist() == [1.0, 3.5]
    assert table.correct_sum.tolist() == [1.0, 0.5]


def test_equal_weights_are_no_weights() -> None:
    confidence = np.random.default_rng(0).random(23)
    assert equal_mass_index(confidence, 4, np.full(23, 7.0)).tolist() == equal_mass_index(confidence, 4).tolist()


def test_an_empty_bin_has_no_gap_and_no_share() -> None:
    table = equal_width(np.array([0.9, 0.7]), np.array([True, False]), 2)
    assert table.rows.tolist() == [0, 2]
    assert table.share.tolist() == [0.0, 1.0]
    assert table.gap.tolist() == [0.0, pytest.approx(0.8 - 0.5)]


@pytest.mark.parametrize("bins", [0, -1, True, 2.0, 1_000_001])
def test_what_is_no_number_of_bins_is_refused(bins: object) -> None:
    with pytest.raises(ConfigError, match="bins is"):
        equal_width(np.array([0.5]), np.array([True]), bins)  # type: ignore[arg-type]
