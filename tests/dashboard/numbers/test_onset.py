"""Since when: the moment is found where the stream was made to turn."""

from __future__ import annotations

import numpy as np

from calibrant.calibration.monitoring.alarms import Alarms, Watch, served_log_p
from calibrant.dashboard.numbers import onset


def stream(rows: int, turn: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Answers that are right as often as they claim, until `turn`; from then on four in ten labels are any class."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(rows, 5))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    wrong = (np.arange(rows) >= turn) & (rng.random(rows) < 0.4)
    return served_log_p(logits), np.where(wrong, rng.integers(0, 5, rows), labels)


def test_labels_that_stop_to_agree_are_dated_to_where_they_did() -> None:
    for seed in range(5):
        log_p, labels = stream(4000, 2000, seed=seed)
        times = 1e9 + 10.0 * np.arange(4000)
        alarms, plain = Alarms(5, Watch()), Alarms(5, Watch())
        found = onset.watch(alarms, log_p, times, log_p, labels, times)["calibration"]
        assert abs(found.began - 2000) < 200
        assert found.began < found.fired < 2600
        assert found.began_time == times[found.began - 1]
        assert found.fired_time == times[found.fired - 1]
        plain.answered(log_p)
        plain.labelled(log_p, labels)
        assert alarms.states() == plain.states()  # watching block by block is watching


def test_nothing_is_dated_where_nothing_changed() -> None:
    log_p, labels = stream(3000, 3000)
    assert onset.watch(Alarms(5, Watch()), log_p, np.arange(3000.0), log_p, labels, np.arange(3000.0)) == {}
