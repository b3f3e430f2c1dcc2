from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts import feedback
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.serve.monitor.log import history as history_module
from calibrant.serve.monitor.log.history import Histories

CLASSES = ("auk", "bittern")


def _write(folder: Path, rows: int = 1) -> None:
    """Two models, one of them by two files; a label for each."""
    writer = FeedbackWriter(folder)
    for name, sha in (("birds", "a"), ("birds", "b"), ("plants", "c")):
        for n in range(rows):
            model = feedback.Model(name, "1", sha, CLASSES)
            writer.predictions(model, [f"{sha}{n}"], [0.0], np.zeros((1, 2), np.float32))
        writer.labels(name, [f"{sha}0"], [1])
    writer.close()


def test_one_pass_reads_the_log_for_all_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path)
    read: list[Path] = []
    real = history_module.records
    monkeypatch.setattr(history_module, "records", lambda path: read.append(path) or real(path))
    histories = Histories(tmp_path)
    histories.restore()
    assert len(read) == 1
    birds, plants = histories.of("birds"), histories.of("plants")
    assert [len(birds.places(id_)) for id_ in ("a0", "b0", "c0")] == [1, 1, 0]
    assert len(plants.places("c0")) == 1
    assert (birds.known.get("b0"), birds.known.get("c0"), plants.known.get("c0")) == (1, None, 1)
    assert birds.classes_of("a") is birds.classes_of("b")
    assert histories.of("birds") is birds


def test_what_this_process_writes_itself_is_not_read(tmp_path: Path) -> None:
    _write(tmp_path)
    histories = Histories(tmp_path)
    histories.restore(own=lambda path: True)
    assert histories.of("birds").places("a0") == []


def test_reading_leaves_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that answers requests has to get Python's lock every few milliseconds."""
    _write(tmp_path, rows=2000)
    rests: list[float] = []
    monkeypatch.setattr(history_module.time, "sleep", rests.append)
    Histories(tmp_path).restore()
    assert len(rests) >= 3


def test_a_part_that_goes_meanwhile_costs_no_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path)
    (there,) = history_module.segments(tmp_path)
    monkeypatch.setattr(history_module, "segments", lambda folder: [tmp_path / f"0{there.name}", there])
    histories = Histories(tmp_path)
    histories.restore()
    assert len(histories.of("plants").places("c0")) == 1


def test_labels_can_tell_when_the_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path)
    go = threading.Event()
    monkeypatch.setattr(history_module, "records", lambda path: go.wait(10) and iter(()))
    histories = Histories(tmp_path)
    assert histories.restored.is_set()
    histories.restore_later(lambda path: False)
    assert not histories.restored.is_set()
    go.set()
    assert histories.restored.wait(10)


def test_a_log_that_cannot_be_read_is_said_and_labels_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(path: Path) -> None:
        raise OSError("no such disk")

    _write(tmp_path)
    monkeypatch.setattr(history_module, "records", broken)
    histories = Histories(tmp_path)
    histories.restore_later(lambda path: False)
    assert histories.restored.wait(10)
    assert "cannot be read" in caplog.text
