"""Since when: the row at which the evidence of an alarm began to grow, found by watching the stream once more.

The evidence starts anew at each block of rows as long as nothing speaks for a change (it then stays about 1, log 0), so
the last such block before the alarm is where the change is most likely to have begun. That is an estimate, good to some
hundred rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.monitoring.alarms import Alarms
from calibrant.calibration.monitoring.calibration_alarm import CalibrationAlarm
from calibrant.calibration.monitoring.drift_alarm import DriftAlarm
from calibrant.calibration.monitoring.feature_alarm import FeatureAlarm

Array = NDArray[np.float64]
QUIET = 1.0  # log evidence up to which nothing speaks for a change


@dataclass(frozen=True)
class Onset:
    """Rows are counted from 1 in the order in which the alarm saw them; times are those at which they were served."""

    began: int
    fired: int
    began_time: float
    fired_time: float


class _Trace:
    """Where one alarm was last quiet before it fired."""

    def __init__(self, alarm: CalibrationAlarm | DriftAlarm | FeatureAlarm) -> None:
        self.alarm = alarm
        self.quiet, self.was_on = 0, False
        self.found: tuple[int, int] | None = None  # rows: evidence began, fired

    def look(self) -> None:
        alarm = self.alarm
        if alarm.fired_at is not None and not self.was_on:
            self.found = self.quiet, alarm.fired_at
        self.was_on = alarm.on  # one that fires again while it is on tells nothing new
        if alarm.log_evidence <= QUIET:
            self.quiet = alarm.rows

    def onset(self, times: Array) -> Onset | None:
        if self.found is None:
            return None
        began, fired = (min(row, len(times) - 1) for row in self.found)
        return Onset(self.found[0] + 1, self.found[1], float(times[began]), float(times[max(fired - 1, 0)]))


def watch(
    alarms: Alarms,
    answered: Array,
    answered_times: Array,
    told: Array,
    labels: NDArray[np.int64],
    told_times: Array,
    scores: NDArray[np.float32] | None = None,
) -> Mapping[str, Onset]:
    """Feeds the alarms block by block; for each that fired, since when. `answered`, `told`: (N, C) of `served_log_p`,
    `told` in the order in which the labels came; `scores`: of the features of `answered`."""
    traces = {name: _Trace(getattr(alarms, name)) for name in ("confidence", "prior")}
    for block in _blocks(len(answered), alarms.confidence.settings.block):
        alarms.answered(answered[block])
        for trace in traces.values():
            trace.look()
    times = {}
    if alarms.features is not None and scores is not None:
        counted = np.isfinite(scores).all(axis=1)
        traces["features"], times["features"] = _Trace(alarms.features), answered_times[counted]
        known = scores[counted]
        for block in _blocks(len(known), alarms.features.settings.block):
            alarms.featured(known[block])
            traces["features"].look()
    calibration = _Trace(alarms.calibration)
    for block in _blocks(len(told), alarms.calibration.settings.block):
        alarms.labelled(told[block], labels[block])
        calibration.look()
    found = {"calibration": calibration.onset(told_times)}
    found |= {name: trace.onset(times.get(name, answered_times)) for name, trace in traces.items()}
    return {name: onset for name, onset in found.items() if onset is not None}


def _blocks(rows: int, block: int) -> Iterator[slice]:
    for first in range(0, rows, block):
        yield slice(first, min(first + block, rows))
