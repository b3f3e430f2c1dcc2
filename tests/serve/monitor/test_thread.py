from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from calibrant.artifacts import feedback
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.serve.monitor.config import MonitorConfig
from calibrant.serve.monitor.monitor import Monitor
from calibrant.serve.monitor.thread import KEPT_FILES, MonitorThread

CLASSES = ("auk", "bittern", "crane", "dunlin")


def _monitor(tiny: ModuleType, sha: str, writer: FeedbackWriter | None = None, version: str = "1") -> Monitor:
    return Monitor(feedback.Model("birds", version, sha, CLASSES), tiny.card(), MonitorConfig(), writer)


def test_the_last_files_of_a_version_still_take_labels(tiny: ModuleType) -> None:
    thread = MonitorThread(None)
    thread.add(_monitor(tiny, "other", version="2"))
    for n in range(KEPT_FILES + 2):
        thread.add(_monitor(tiny, str(n)))
    assert [m.model.sha256 for m in thread.monitors] == ["other", *map(str, range(2, KEPT_FILES + 2))]
    thread.close()


def test_a_log_that_cannot_be_written_does_not_stop_the_monitor(
    tiny: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = FeedbackWriter(tmp_path)
    monitor = _monitor(tiny, "sha", writer)
    thread = MonitorThread(None)
    thread.monitors.append(monitor)
    writer.close()
    monitor.record("r", np.zeros((1, 4), np.float32))
    thread.close()
    assert "serving goes on" in caplog.text
