from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from calibrant.calibration.monitoring.alarms import Watch
from calibrant.calibration.monitoring.baseline import Baseline, KnownRows
from calibrant.calibration.monitoring.calibration_alarm import CalibrationAlarm, CalibrationSettings
from calibrant.calibration.monitoring.drift_alarm import DriftSettings

from .streams import calm, misfit, stream


def test_the_alarm_is_silent_on_a_calibrated_stream_and_fires_on_an_over_confident_one() -> None:
    rng = np.random.default_rng(4)
    alarm = CalibrationAlarm()
    assert not any(alarm.add(*stream(500, rng)) for _ in range(10))
    fired = None
    for n in range(0, 2000, 25):
        if alarm.add(*stream(25, rng, sharper=2.0)):
            fired = n
            break
    assert fired is not None
    assert fired < 500
    assert alarm.on


def test_a_misfit_that_was_there_from_the_start_is_no_change() -> None:
    """A class bias that the baseline knows is normal; when it turns, that is an alarm."""
    rng = np.random.default_rng(5)
    shift = np.array([0.8, -0.8, 0.4, -0.4, 0.0])

    def biased(n: int, sign: float) -> tuple[np.ndarray, np.ndarray]:
        log_p, labels = stream(n, rng)
        moved = log_p - sign * shift
        return moved - np.log(np.exp(moved).sum(axis=1, keepdims=True)), labels

    alarm = CalibrationAlarm(baseline=Baseline.fit([KnownRows.of(*biased(5000, 1.0))]))
    assert not any(alarm.add(*biased(500, 1.0)) for _ in range(8))
    assert any(alarm.add(*biased(100, -1.0)) for _ in range(6))


def test_labels_may_come_one_at_a_time() -> None:
    log_p, labels = stream(200, np.random.default_rng(6), sharper=2.0)
    one, all_ = CalibrationAlarm(), CalibrationAlarm()
    all_.add(log_p, labels)
    for n in range(200):
        one.add(log_p[n : n + 1], labels[n : n + 1])
    assert one.log_evidence == pytest.approx(all_.log_evidence)


def test_false_alarms_stay_below_alpha() -> None:
    """100 calibrated streams of 1,000 rows at alpha = 0.1: about 10 at most; far fewer in practice."""
    rng = np.random.default_rng(7)
    fired = sum(
        CalibrationAlarm(CalibrationSettings(alpha=0.1, horizon=1000)).add(*stream(1000, rng)) for _ in range(100)
    )
    assert fired <= 10


def test_a_baseline_learned_on_the_way_raises_no_false_alarms() -> None:
    """Its error, of 1,000 labels, would add up over the next 5,000 if it were taken for the truth."""
    rng = np.random.default_rng(9)
    fired = sum(CalibrationAlarm().add(*misfit(5000, rng)) for _ in range(12))
    assert fired == 0


def test_what_was_learned_on_the_way_still_finds_a_change_and_then_stays() -> None:
    rng = np.random.default_rng(10)
    alarm = CalibrationAlarm()
    assert not alarm.add(*misfit(2500, rng))
    assert alarm.baseline is not None
    assert 1500 <= alarm.baseline.rows <= 2000  # those that are 500 rows old, but for a step
    delay = next(n for n in range(25, 1500, 25) if alarm.add(*misfit(25, rng, -1.0)))
    assert delay < 500
    normal = alarm.baseline
    alarm.add(*misfit(4000, rng, -1.0))
    assert alarm.baseline is normal


def test_a_baseline_settles_and_gives_its_rows_back() -> None:
    """In a few steps, since each fits it anew: by a quarter of what it has, or to the end."""
    alarm, sizes = CalibrationAlarm(), []
    log_p, labels = misfit(7000, np.random.default_rng(11))
    for n in range(0, 7000, 25):
        assert not alarm.add(log_p[n : n + 25], labels[n : n + 25])
        if alarm.baseline is not None and [alarm.baseline.rows] != sizes[-1:]:
            sizes.append(alarm.baseline.rows)
    assert all(after >= 1.25 * before or after == 5000 for before, after in pairwise(sizes))
    assert sizes[-1] == 5000
    assert alarm._known == []


def test_the_error_of_a_given_baseline_does_not_add_up_to_an_alarm() -> None:
    """Of these 12 calm streams 3 raise an alarm if nothing is allowed for the error of 1,000 rows."""
    fired = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        fired += CalibrationAlarm(baseline=Baseline.fit([KnownRows.of(*calm(1000, 10, rng))])).add(*calm(5000, 10, rng))
    assert fired == 0


@pytest.mark.parametrize(("classes", "fewest", "full"), [(2, 500, 1000), (20, 500, 1000), (100, 2500, 5000)])
def test_what_a_baseline_takes_grows_with_the_classes(classes: int, fewest: int, full: int) -> None:
    settings = CalibrationSettings()
    assert (settings.fewest_rows(classes), settings.full_rows(classes)) == (fewest, full)


def test_the_beginning_of_a_baseline_counts_and_nothing_is_tested_until_it_is_whole() -> None:
    """300 rows were given, 500 are needed: the first 200 labels are learned from, however badly they fit."""
    rng = np.random.default_rng(12)
    alarm = CalibrationAlarm(beginning=KnownRows.of(*misfit(300, rng)))
    assert alarm.needs == 200
    assert not alarm.add(*stream(175, rng, sharper=3.0))
    assert alarm.log_evidence == -np.inf
    assert alarm.baseline is None
    alarm.add(*stream(25, rng, sharper=3.0))
    assert alarm.baseline is not None
    assert alarm.baseline.rows == 500


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("classes", "given"), [(2, 200), (10, 500), (20, 200), (20, 500)])
def test_at_most_3_of_100_calm_streams_raise_an_alarm_whatever_baseline_is_taken(classes: int, given: int) -> None:
    """4 or more have a chance of 1.8 % if an alarm is false in 1 % of streams; it promises 0.1 %.

    The sizes that raised most before the allowance was what it is; bench/monitor_baselines.py runs the others.
    """
    fired = 0
    for seed in range(100):
        rng = np.random.default_rng([seed, classes, given])
        rows = KnownRows.of(*calm(given, classes, rng))
        watch = Watch.given(0.0, CalibrationSettings(), DriftSettings(), rows, 2000)
        alarm = CalibrationAlarm(watch.calibration, watch.baseline, watch.beginning)
        fired += alarm.add(*calm(5000, classes, rng))
    assert fired <= 3


def test_the_threshold_by_hand() -> None:
    """M grows by one a block in expectation: 5,000 rows are 200 blocks, and Markov's inequality divides by alpha."""
    assert CalibrationAlarm().log_threshold == pytest.approx(np.log(200 / 0.001))


def test_after_an_alarm_the_evidence_begins_anew() -> None:
    rng = np.random.default_rng(4)
    alarm = CalibrationAlarm(baseline=Baseline(1.0, np.zeros(5)))
    while not alarm.add(*stream(25, rng, sharper=3.0)):
        assert alarm.log_evidence < alarm.log_threshold
        assert alarm.rows < 2000
    assert alarm.fired_at == alarm.rows
    assert alarm.log_evidence == -np.inf


def test_where_it_was_raised_stays_while_it_fires_again() -> None:
    rng = np.random.default_rng(4)
    alarm = CalibrationAlarm(baseline=Baseline(1.0, np.zeros(5)), settings=CalibrationSettings(horizon=1000))
    while not alarm.add(*stream(25, rng, sharper=3.0)):
        assert alarm.raised_at is None
    first = alarm.rows
    while not alarm.add(*stream(25, rng, sharper=3.0)):
        pass
    assert (alarm.raised_at, alarm.fired_at) == (first, alarm.rows)
    alarm.add(*stream(1000, rng))
    assert not alarm.on
    off = alarm.rows
    while not alarm.add(*stream(25, rng, sharper=3.0)):
        pass
    assert alarm.raised_at == alarm.rows > off
