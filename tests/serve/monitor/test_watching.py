"""What is set up where a server watches its traffic, and what is not even loaded where it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from calibrant.serve.config import ServeConfig
from calibrant.serve.monitor.config import MonitorConfig
from calibrant.serve.monitor.watching import Watching

HEAVY = (
    "calibrant.artifacts.feedback", "calibrant.calibration.intervals", "calibrant.calibration.statistics",
    "calibrant.calibration.verdict.served", "calibrant.images.layouts", "calibrant.serve.canaries",
    "calibrant.serve.monitor.monitor", "importlib.metadata",
)  # fmt: skip


def a_model(*, independent: bool = False, outputs: tuple[str, ...] = ("probabilities", "logits")) -> Any:
    card = SimpleNamespace(independent=independent)
    return SimpleNamespace(name="birds", monitor=None, session=SimpleNamespace(card=card, outputs=outputs))


def test_how_much_of_the_log_is_kept_is_an_option(tmp_path: Path) -> None:
    watch = MonitorConfig(keep_gib=0.5, keep_days=2)
    watching = Watching(ServeConfig([], feedback_log=tmp_path, watch=watch), leads=True, follows=False)
    writer = watching.thread.writer
    watching.thread.close()
    assert writer is not None
    assert (writer.keep_bytes, writer.keep_days) == (1 << 29, 2)


def test_only_a_leader_of_several_reads_what_others_write(tmp_path: Path) -> None:
    for follows in (True, False):
        watching = Watching(ServeConfig([], feedback_log=tmp_path), leads=True, follows=follows)
        watching.thread.close()
        assert (watching.thread.follow is not None) == follows


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (a_model(independent=True), "birds: its labels are independent"),
        (a_model(outputs=("probabilities",)), ""),
        (SimpleNamespace(name="raw", monitor=None, session=SimpleNamespace(card=None, outputs=("logits",))), ""),
    ],
)
def test_what_cannot_be_watched_is_left_alone(model: Any, said: str, caplog: pytest.LogCaptureFixture) -> None:
    watching = Watching(ServeConfig([]), leads=True, follows=False)
    watching.watch(model)
    watching.thread.close()
    assert (model.monitor, watching.thread.monitors) == (None, [])
    assert caplog.text.count(said) == 1 if said else caplog.text == ""


def test_a_server_that_does_not_watch_loads_none_of_it() -> None:
    code = f"import calibrant.serve.processes.server, sys; print(*(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
