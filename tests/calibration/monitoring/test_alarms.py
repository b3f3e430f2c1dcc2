from __future__ import annotations

import json

import numpy as np
import pytest

from calibrant.calibration.monitoring.alarms import Alarms, Watch, served_log_p
from calibrant.calibration.monitoring.baseline import Baseline, KnownRows
from calibrant.calibration.monitoring.calibration_alarm import CalibrationSettings
from calibrant.calibration.monitoring.drift_alarm import DriftSettings
from calibrant.calibration.softmax import LEAST_LOG_P

from .streams import stream


def test_a_watch_comes_back_from_its_record_and_later_settings_are_left_out() -> None:
    baseline = Baseline(0.9, np.array([0.1, -0.1]), rows=900)
    given = Watch(12.5, CalibrationSettings(alpha=0.01, memories=(50,)), DriftSettings(learn=70), baseline, window=99)
    record = json.loads(json.dumps(given.to_dict()))
    record["calibration"]["added later"] = 3
    got = Watch.from_dict(record)
    assert (got.since, got.calibration, got.drift, got.window) == (12.5, given.calibration, given.drift, 99)
    assert got.baseline is not None
    assert got.baseline.to_dict() == baseline.to_dict()


def test_the_alarms_are_set_to_what_the_watch_says() -> None:
    baseline = Baseline(0.9, np.array([0.1, -0.1]), rows=900)
    alarms = Alarms(2, Watch(0.0, CalibrationSettings(alpha=0.01), DriftSettings(alpha=0.02), baseline))
    assert alarms.calibration.baseline is baseline
    assert (alarms.calibration.settings.alpha, alarms.prior.settings.alpha) == (0.01, 0.02)
    beginning = KnownRows.of(np.zeros((9, 2)), np.zeros(9, np.int64))
    assert Alarms(2, Watch(beginning=beginning)).calibration.beginning is beginning
    assert (alarms.confidence.categories, alarms.prior.categories) == (20, 2)


@pytest.mark.parametrize(("rows", "fixed"), [(499, False), (500, True)])
def test_few_rows_are_the_beginning_of_a_baseline_and_enough_are_one(rows: int, fixed: bool) -> None:
    given = KnownRows.of(*stream(rows, np.random.default_rng(0)))
    watch = Watch.given(0.0, CalibrationSettings(), DriftSettings(), given, 2000)
    assert (watch.baseline is not None, watch.beginning is not None) == (fixed, not fixed)
    again = Watch.from_dict(json.loads(json.dumps(watch.to_dict())))
    assert (again.baseline is not None, again.beginning is not None) == (fixed, not fixed)


def test_no_record_is_a_server_that_says_nothing() -> None:
    assert Watch.from_dict(None) == Watch()


def test_what_a_model_rules_out_stays_finite() -> None:
    got = served_log_p(np.array([[0.0, 0.0, -np.inf]], np.float32))
    assert got[0].tolist() == pytest.approx([np.log(0.5), np.log(0.5), LEAST_LOG_P])


def test_each_alarm_is_told_once_while_it_is_on() -> None:
    rng = np.random.default_rng(0)
    alarms = Alarms(5, Watch(drift=DriftSettings(learn=500)))
    calm, _ = stream(500, rng)
    assert alarms.answered(calm) == (False, False)
    told = [alarms.answered(served_log_p(3 * stream(100, rng)[0])) for _ in range(20)]
    assert sum(confidence for confidence, _ in told) == 1
    assert alarms.states()["confidence"].on
    assert not alarms.states()["prior"].on  # of which class stayed as it was
    wrong = np.zeros(50, np.int64)
    surely = np.tile(served_log_p(np.array([0.0, 9, 0, 0, 0])), (50, 1))
    assert [alarms.labelled(surely, wrong) for _ in range(8)].count(True) == 1
