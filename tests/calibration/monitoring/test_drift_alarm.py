from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.monitoring.drift_alarm import DriftAlarm


def test_drift_of_a_category_is_found_and_its_absence_is_not() -> None:
    rng = np.random.default_rng(8)
    before, after = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.25, 0.25, 0.25, 0.25])
    alarm = DriftAlarm(4)
    assert not any(alarm.add(rng.choice(4, 1000, p=before)) for _ in range(30))
    assert alarm.ready
    assert any(alarm.add(rng.choice(4, 100, p=after)) for _ in range(20))


def test_the_threshold_by_hand() -> None:
    assert DriftAlarm(5).log_threshold == pytest.approx(np.log(100_000 / 50 / 0.001))


@pytest.mark.parametrize(("categories", "rows"), [(5, 2000), (200, 4000)])
def test_a_reference_takes_at_least_twenty_rows_a_category(categories: int, rows: int) -> None:
    alarm = DriftAlarm(categories)
    alarm.add(np.arange(rows - 50) % categories)
    assert not alarm.ready
    alarm.add(np.arange(50) % categories)
    assert alarm.ready


def test_on_rows_like_the_learned_ones_the_evidence_falls_by_what_the_reference_may_be_off() -> None:
    """C = 5 categories learned from 2,000 rows: twice the 99 % quantile of chi2(4) / (2 n), 2.33 sd above its mean."""
    block = np.repeat(np.arange(5), 10)
    alarm = DriftAlarm(5)
    for _ in range(40):
        alarm.add(block)
    assert alarm.ready
    slack = (4 + 2.33 * np.sqrt(8)) / 2000
    alarm.add(block)  # nothing was seen shortly before: no alternative yet
    assert alarm.log_evidence == -np.inf
    alarm.add(block)
    assert alarm.log_evidence == pytest.approx(-50 * slack)
    alarm.add(block)
    assert alarm.log_evidence == pytest.approx(np.log(1 + np.exp(-50 * slack)) - 50 * slack)


def test_a_category_that_was_not_seen_while_learning_is_no_alarm_by_itself() -> None:
    rng = np.random.default_rng(0)
    alarm = DriftAlarm(3)
    alarm.add(rng.integers(0, 2, 2000))
    assert alarm.reference is not None
    assert alarm.reference[2] == pytest.approx(0.5 / 2001.5)
    alarm.add(rng.integers(0, 2, 100))
    assert not alarm.add(np.append(rng.integers(0, 2, 49), 2))
    assert np.isfinite(alarm.log_evidence)
