from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.artifacts import feedback
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.serve.monitor.log.output import LogOutput
from calibrant.serve.protocol.errors import NotReady

MODEL = feedback.Model("birds", "1", "sha", ("auk", "crane"), watch={"since": 3.0})
ZERO = np.zeros((2, 2), np.float32)


def _fill(writer: FeedbackWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(record: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writer, "_line", full)


def test_how_a_model_is_watched_is_in_the_log_before_its_first_answer(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    LogOutput(writer, MODEL).describe()
    writer.close()
    (served,) = feedback.read_feedback(tmp_path).served
    assert (served.ids, served.model.watch) == ((), {"since": 3.0})


def test_a_full_disk_is_said_once_and_its_rows_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writer = FeedbackWriter(tmp_path)
    output = LogOutput(writer, MODEL)
    with monkeypatch.context() as patch:
        _fill(writer, patch)
        output.describe()  # no reason not to serve
        caplog.clear()
        for _ in range(2):
            assert output.predictions(["a", "b"], [0.0] * 2, ZERO, [None] * 2) is None
        with pytest.raises(NotReady, match="no label was taken"):
            output.labels(["a"], [0], chosen=False)
        assert caplog.text.count("No space left") == 1
    assert output.predictions(["c", "d"], [0.0] * 2, ZERO, [None] * 2) is not None
    assert "4 rows are not in it" in caplog.text
    assert output.lost == 4
    writer.close()
    (served,) = feedback.read_feedback(tmp_path).served
    assert (served.ids, served.model.watch) == (("c", "d"), {"since": 3.0})  # described with the first that was kept
