"""Macro-F1: the interval is possible, holds the value, and does not hear of classes that do not occur."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.intervals.macro_f1 import measure_macro_f1
from calibrant.calibration.metrics.correctness import macro_f1
from calibrant.calibration.softmax import softmax
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.calibration.statistics.statistics import Statistics

RNG = np.random.default_rng(3)
LABELS = RNG.integers(0, 4, 200)
LOGITS = 1.5 * np.eye(4)[LABELS] + RNG.normal(size=(200, 4))


def test_the_interval_holds_the_value_and_is_possible() -> None:
    for rows in (1, 2, 20, 200):
        m = measure_macro_f1(statistics_of(LOGITS[:rows], LABELS[:rows]), 15)
        assert m.value == pytest.approx(macro_f1(softmax(LOGITS[:rows]), LABELS[:rows]))
        assert m.low is not None
        assert m.high is not None
        assert 0 <= m.low <= m.value <= m.high <= 1


def test_classes_that_do_not_occur_change_nothing() -> None:
    more = np.concatenate([LOGITS, np.full((200, 3), -50.0)], axis=1)
    some, all_of_them = (measure_macro_f1(statistics_of(z, LABELS), 15) for z in (LOGITS, more))
    assert all_of_them.value == pytest.approx(some.value)
    assert all_of_them.low == pytest.approx(some.low)
    assert all_of_them.high == pytest.approx(some.high)


def test_four_times_the_rows_halve_the_width() -> None:
    z, y = np.tile(LOGITS, (4, 1)), np.tile(LABELS, 4)
    one, four = (width(statistics_of(*rows)) for rows in ((LOGITS, LABELS), (z, y)))
    assert four == pytest.approx(one / 2, rel=0.15)


def width(s: Statistics) -> float:
    m = measure_macro_f1(s, 15)
    assert m.low is not None
    assert m.high is not None
    return m.high - m.low


@pytest.mark.parametrize("sure", [3.0, 8.0, 30.0])
def test_rows_that_all_went_well_bound_it_however_sure_they_were(sure: float) -> None:
    """600 rows without an error: the accuracy is at least 99.36 %, and so is the mean F1 of even classes, nearly."""
    labels = np.arange(600) % 5
    m = measure_macro_f1(statistics_of(sure * np.eye(5)[labels], labels), 15)
    assert m.low == pytest.approx(0.9936, abs=2e-3)
    assert m.high == 1.0
