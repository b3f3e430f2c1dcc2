"""Labels reach every file of a model that answered under their id, from memory or from the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from calibrant.artifacts import feedback
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.serve.monitor.config import MonitorConfig
from calibrant.serve.monitor.labels import Labels
from calibrant.serve.monitor.log.history import Histories
from calibrant.serve.monitor.monitor import Monitor
from calibrant.serve.monitor.taking import take_labels

CLASSES = ("auk", "bittern", "crane", "dunlin")
ROW = np.array([[0.0, 3.0, 1.0, 0.5]], np.float32)


def _model(version: str, classes: tuple[str, ...] = CLASSES) -> feedback.Model:
    return feedback.Model("birds", version, f"sha-{version}-{len(classes)}", classes)


@pytest.fixture
def start(tmp_path: Path, tiny: ModuleType) -> Iterator[Callable[..., list[Monitor]]]:
    """A server that begins with what the log holds: a monitor for each of these versions."""
    writers: list[FeedbackWriter] = []

    def begin(*versions: str) -> list[Monitor]:
        for writer in writers:
            writer.close()
        writers.append(FeedbackWriter(tmp_path))
        histories = Histories(tmp_path)
        histories.restore(writers[-1].wrote)
        history = histories.of("birds")
        return [Monitor(_model(v), tiny.card(), MonitorConfig(), writers[-1], history=history) for v in versions]

    yield begin
    for writer in writers:
        writer.close()


def _labels(path: Path) -> list[str]:
    return [line for file in sorted(path.glob("*.jsonl")) for line in file.read_text().splitlines() if "labels" in line]


def test_both_files_that_answered_count_a_label_and_the_log_has_it_once(
    start: Callable[..., list[Monitor]], tmp_path: Path
) -> None:
    for restarted in (False, True):
        old, new = start("1", "2")
        if not restarted:
            old.record("both", ROW)
            new.record("both", -ROW)
            new.record("late", ROW)
            old.flush(), new.flush()
            old.forget_recent()  # as after many more rows: one from memory, one from the log
            assert take_labels([old, new], Labels(["both"], [1])).states == {"both": "accepted"}
            assert (old.labels, new.labels) == (1, 1)
            assert [r.correct for m in (old, new) for r in m.window.labelled_rows()] == [True, False]
        else:
            assert take_labels([old, new], Labels(["both", "late"], [1, 1])).states == {
                "both": "repeated", "late": "accepted",
            }  # fmt: skip
            assert (old.labels, new.labels) == (0, 1)
    assert len(_labels(tmp_path)) == 2


def test_a_row_from_memory_is_the_one_from_the_log_to_the_last_bit(start: Callable[..., list[Monitor]]) -> None:
    (monitor,) = start("1")
    logits = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    monitor.record("r", logits)
    monitor.flush()
    take_labels([monitor], Labels(["r/0"], [0]))
    before = monitor.window.labelled_rows()
    monitor.forget_recent()
    take_labels([monitor], Labels(["r/0"], [1]))
    take_labels([monitor], Labels(["r/0"], [0]))
    assert monitor.window.labelled_rows() == before
    assert monitor.labels == 1


def test_labels_of_one_version_are_of_its_answers(start: Callable[..., list[Monitor]]) -> None:
    old, new = start("1", "2")
    old.record("a", ROW)
    new.record("b", ROW)
    take = lambda *ids: take_labels([old, new], Labels(ids, [1] * len(ids)), version="2").states  # noqa: E731
    assert take("a", "b") == {"a": "unknown", "b": "accepted"}
    assert take_labels([old, new], Labels(["a"], [1])).states == {"a": "accepted"}
    assert take("a", "b") == {"a": "unknown", "b": "repeated"}
    (later,) = start("2")  # and after a restart, with the first one gone
    old_id, new_id = take_labels([later], Labels(["a", "b"], [2, 2]), version="2").states.values()
    assert (old_id, new_id) == ("unknown", "changed")


def test_a_file_with_other_classes_takes_no_numbers_of_these(
    start: Callable[..., list[Monitor]], tmp_path: Path, tiny: ModuleType
) -> None:
    writer = FeedbackWriter(tmp_path)
    writer.predictions(_model("0", ("owl", "auk")), ["other"], [0.0], ROW[:, :2])
    writer.predictions(_model("0"), ["same"], [0.0], ROW)
    writer.close()
    (monitor,) = start("1")
    assert take_labels([monitor], Labels(["other", "same"], [1, 1])).states == {"other": "unknown", "same": "accepted"}
    assert monitor.labels == 0


def test_an_id_that_comes_again_and_again_is_not_looked_for_in_all_its_lines(
    start: Callable[..., list[Monitor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from calibrant.serve.monitor import taking

    old, new = start("1", "2")
    for _ in range(200):
        old.record("always", ROW)
        old.flush()
    read: list[object] = []
    real = taking.record_at
    monkeypatch.setattr(taking, "record_at", lambda *place: read.append(place) or real(*place))
    assert take_labels([old, new], Labels(["always"], [1])).states == {"always": "accepted"}
    assert len(read) <= 32
    assert (old.labels, new.labels) == (1, 0)
