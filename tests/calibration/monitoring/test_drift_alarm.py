from __future__ import annotations

import numpy as np

from calibrant.calibration.monitoring.drift_alarm import DriftAlarm


def test_drift_of_a_category_is_found_and_its_absence_is_not() -> None:
    rng = np.random.default_rng(8)
    before, after = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.25, 0.25, 0.25, 0.25])
    alarm = DriftAlarm(4)
    assert not any(alarm.add(rng.choice(4, 1000, p=before)) for _ in range(30))
    assert alarm.ready
    assert any(alarm.add(rng.choice(4, 100, p=after)) for _ in range(20))
