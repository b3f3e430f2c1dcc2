import numpy as np
import pytest

from calibrant.calibration.evaluation import evaluate
from calibrant.calibration.statistics.accumulate import statistics_of_probabilities
from calibrant.calibration.verdict.case import Case
from calibrant.calibration.verdict.causes.where import worst_range


def case(*parts):
    """Rows of two classes: (claimed, share right, rows)."""
    probs = np.concatenate([np.tile([c, 1 - c], (n, 1)) for c, _, n in parts])
    labels = np.concatenate([(np.arange(n) >= round(right * n)).astype(int) for _, right, n in parts])
    statistics = statistics_of_probabilities(probs, labels)
    return Case(evaluate(statistics), statistics)


def test_an_error_among_the_surest_rows_is_found_there():
    found = worst_range(case((0.6, 0.6, 1000), (0.8, 0.8, 1000), (0.98, 0.68, 200)))
    assert found is not None
    assert found.words == (
        "Most of it lies where it claims more than 93 %: 98 % on average, and 68 % are right (200 rows)."
    )
    assert (found.rows, found.low, found.high) == (200, pytest.approx(14 / 15), 1.0)


def test_an_error_in_the_middle_names_both_ends():
    found = worst_range(case((0.62, 0.32, 300), (0.8, 0.8, 1000), (0.98, 0.98, 1000)))
    assert found is not None
    assert "where it claims 60 to 67 %: 62 % on average, and 32 % are right" in found.words


def test_an_error_that_is_everywhere_or_no_more_than_chance_has_no_place():
    assert worst_range(case((0.6, 0.4, 1000), (0.8, 0.6, 1000), (0.98, 0.78, 1000))) is None
    assert worst_range(case((0.6, 0.6, 1000), (0.8, 0.8, 1000), (0.98, 0.9, 10))) is None
    assert worst_range(case((0.5, 0.5, 100))) is None
