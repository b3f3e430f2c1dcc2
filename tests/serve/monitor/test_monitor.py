from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from calibrant.artifacts import feedback
from calibrant.artifacts.feedback_logits import Kept
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.artifacts.model_card import Prior
from calibrant.calibration.monitoring.baseline import KnownRows
from calibrant.serve.http.exposition import monitored
from calibrant.serve.http.prometheus import Exposition
from calibrant.serve.monitor import monitor as monitor_module
from calibrant.serve.monitor.config import MonitorConfig
from calibrant.serve.monitor.labels import Labels
from calibrant.serve.monitor.log.history import Histories
from calibrant.serve.monitor.monitor import Monitor, row_ids
from calibrant.serve.monitor.taking import take_labels
from calibrant.serve.protocol.errors import Refusal

CLASSES = ("auk", "bittern", "crane", "dunlin")
MODEL = feedback.Model("birds", "1", "sha", CLASSES)


@pytest.fixture
def make(tiny: ModuleType) -> Iterator[Callable[..., Monitor]]:
    """Monitors whose logs are closed at the end."""
    writers: list[FeedbackWriter] = []

    def build(log: Path | None = None, said: list[str] | None = None, restored: Path | None = None) -> Monitor:
        """`restored`: an earlier log that it knows."""
        writers.extend([] if log is None else [FeedbackWriter(log)])
        writer = None if log is None else writers[-1]
        histories = Histories(restored)
        histories.restore(lambda path: writer is not None and path == writer.path)
        alarm = None if said is None else said.append
        return Monitor(MODEL, tiny.card(), MonitorConfig(), writer, alarm=alarm, history=histories.of("birds"))

    yield build
    for writer in writers:
        writer.close()


def _draw(n: int, rng: np.random.Generator, flatter: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and labels from a distribution that is `flatter` than what they claim."""
    logits = rng.normal(0, 2, (n, 4)).astype(np.float32)
    p = np.exp(logits / flatter)
    p /= p.sum(axis=1, keepdims=True)
    return logits, (rng.random((n, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(0, 3)


def test_rows_of_a_request_get_ids_of_their_own() -> None:
    assert row_ids("a", 1) == ["a"]
    assert row_ids("a", 3) == ["a/0", "a/1", "a/2"]


def test_labels_are_taken_once_corrected_or_unknown(make: Callable[..., Monitor], tmp_path: Path) -> None:
    monitor = make(tmp_path)
    monitor.record("r", np.zeros((2, 4), np.float32))
    first = monitor.label(Labels(["r/0", "r/1", "x"], [0, 1, 2]))
    assert first.states == {"r/0": "accepted", "r/1": "accepted", "x": "unknown"}
    again = monitor.label(Labels(["r/0", "r/1"], [0, 3]))
    assert again.states == {"r/0": "repeated", "r/1": "changed"}
    assert monitor.labels == 2
    (served,) = feedback.read_feedback(tmp_path).served
    assert served.labels.tolist() == [0, 3]


def test_labels_of_chosen_rows_are_kept_and_count_in_no_figure(make: Callable[..., Monitor], tmp_path: Path) -> None:
    """All errors of a calibrated model, and nothing else: a random sample of them would be an alarm long before 400."""
    rng, said = np.random.default_rng(0), list[str]()
    monitor = make(tmp_path, said)
    logits, labels = _draw(3000, rng)
    monitor.record("r", logits)
    wrong = np.flatnonzero(logits.argmax(1) != labels)[:400]
    ids = [f"r/{n}" for n in wrong]
    assert monitor.label(Labels(ids, labels[wrong].tolist(), chosen=True)).count("accepted") == 400
    assert (monitor.labels, said, monitor.report().get("labelled")) == (0, [], None)
    assert monitor.report()["chosen_labels"] == 400
    again = monitor.label(Labels([*ids[:2], "x"], [int(labels[wrong[0]]), (int(labels[wrong[1]]) + 1) % 4, 0], True))
    assert list(again.states.values()) == ["repeated", "changed", "unknown"]
    # a random sample that has one of them counts it
    right = int(np.flatnonzero(logits.argmax(1) == labels)[0])
    monitor.label(Labels([ids[0], f"r/{right}"], [int(labels[wrong[0]]), int(labels[right])]))
    assert (monitor.labels, monitor.report()["chosen_labels"]) == (2, 399)
    # and what is known of it from there on is corrected, not set aside
    assert monitor.label(Labels([ids[0]], [(int(labels[wrong[0]]) + 1) % 4], chosen=True)).count("changed") == 1
    (served,) = feedback.read_feedback(tmp_path).served
    assert (served.labels >= 0).sum() == len(served.arrivals.rows) == 2
    assert (served.chosen >= 0).sum() == monitor.report()["chosen_labels"]
    assert served.labels[wrong[0]] == (labels[wrong[0]] + 1) % 4
    restarted = make(tmp_path / "next", restored=tmp_path)
    assert restarted.report()["chosen_labels"] == monitor.report()["chosen_labels"]
    assert restarted.label(Labels([ids[5]], [int(labels[wrong[5]])], chosen=True)).count("repeated") == 1


def test_the_log_tells_how_long_each_row_took(make: Callable[..., Monitor], tmp_path: Path) -> None:
    monitor = make(tmp_path)
    monitor.record("r", np.zeros((2, 4), np.float32), 0.0125)
    monitor.record("s", np.zeros((1, 4), np.float32))
    monitor.flush()
    (served,) = feedback.read_feedback(tmp_path).served
    np.testing.assert_array_equal(served.latency_ms, np.array([12.5, 12.5, np.nan], np.float32))


def test_a_label_finds_a_row_that_memory_has_long_forgotten(make: Callable[..., Monitor], tmp_path: Path) -> None:
    monitor = make(tmp_path)
    logits = np.array([[0.0, 3.0, 0.0, 0.0]], np.float32)
    monitor.record("old", logits)
    monitor.record("other", -logits)
    monitor.flush()
    monitor.forget_recent()
    assert monitor.label(Labels(["old"], [1])).count("accepted") == 1
    (row,) = monitor.window.labelled_rows()
    p = np.exp(3.0) / (np.exp(3.0) + 3)
    assert (row.confidence, row.correct, row.nll) == (pytest.approx(p), True, pytest.approx(-np.log(p)))


def test_a_restart_remembers_predictions_and_labels(make: Callable[..., Monitor], tmp_path: Path) -> None:
    before = make(tmp_path)
    before.record("a", np.zeros((1, 4), np.float32))
    before.record("b", np.zeros((1, 4), np.float32))
    before.label(Labels(["a"], [2]))
    after = make(tmp_path, restored=tmp_path)
    reply = after.label(Labels(["a", "b", "c"], [2, 0, 1]))
    assert reply.states == {"a": "repeated", "b": "accepted", "c": "unknown"}


def test_a_label_for_another_file_of_the_model_is_kept_but_not_counted(tiny: ModuleType, tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    writer.predictions(feedback.Model("birds", "1", "older file", CLASSES), ["a"], [0.0], np.zeros((1, 4), np.float32))
    writer.close()
    later = FeedbackWriter(tmp_path)
    histories = Histories(tmp_path)
    histories.restore(later.wrote)
    monitor = Monitor(MODEL, tiny.card(), MonitorConfig(), later, history=histories.of("birds"))
    assert monitor.label(Labels(["a"], [3])).states == {"a": "accepted"}
    assert monitor.labels == 0
    later.close()
    assert feedback.read_feedback(tmp_path).served[0].labels.tolist() == [3]


def test_a_label_goes_to_whichever_file_answered(make: Callable[..., Monitor], tiny: ModuleType) -> None:
    first = make()
    second = Monitor(replace(MODEL, sha256="newer"), tiny.card(), MonitorConfig(), None, history=first.history)
    first.record("a", np.zeros((1, 4), np.float32))
    second.record("b", np.zeros((1, 4), np.float32))
    reply = take_labels([first, second], Labels(["a", "b", "c"], [0, 1, 2]))
    assert reply.states == {"a": "accepted", "b": "accepted", "c": "unknown"}
    assert (first.labels, second.labels) == (1, 1)


def test_an_over_confident_stream_raises_one_alarm_line(make: Callable[..., Monitor]) -> None:
    rng, said = np.random.default_rng(0), []
    monitor = make(said=said)
    for n in range(8):
        logits, labels = _draw(50, rng, flatter=3.0)
        monitor.record(f"r{n}", logits)
        monitor.label(Labels(row_ids(f"r{n}", 50), labels.tolist()))
    assert len([line for line in said if "no longer match" in line]) >= 1
    assert monitor.report()["alarms"]["calibration"]["on"] is True


def test_an_alarm_that_stays_is_said_once(make: Callable[..., Monitor]) -> None:
    said: list[str] = []
    monitor = make(said=said)
    logits = np.tile(np.array([[20.0, 0, 0, 0]], np.float32), (400, 1))
    monitor.record("r", logits)
    monitor.label(Labels([f"r/{n}" for n in range(400)], [1] * 400))  # sure, and always wrong
    assert monitor.alarms.calibration.on
    assert len(said) == 1


def test_a_calibrated_stream_is_reported_as_such(make: Callable[..., Monitor]) -> None:
    rng, said = np.random.default_rng(1), []
    monitor = make(said=said)
    logits, labels = _draw(2000, rng)
    monitor.record("r", logits)
    monitor.label(Labels(row_ids("r", 2000), labels.tolist()))
    report = monitor.report()
    assert said == []
    truth = (logits.argmax(axis=1) == labels).mean()
    assert report["expected_accuracy"]["low"] <= truth <= report["expected_accuracy"]["high"]
    assert report["labelled"]["accuracy"]["value"] == pytest.approx(truth)
    assert report["labelled"]["ece"]["value"] < 0.05
    assert report["labelled"]["expected_accuracy_error"] == pytest.approx(
        report["expected_accuracy"]["value"] - truth, abs=1e-6
    )


def test_the_held_out_gap_moves_the_expected_accuracy(tiny: ModuleType) -> None:
    metrics = {"after": {"accuracy": {"value": 0.8}, "under_ece": {"value": 0.01}, "over_ece": {"value": 0.04}}}
    calibrator = {"method": "temperature", "parameters": {"temperature": 2.0}, "fitted_on": {"rows": 400}}
    monitor = Monitor(MODEL, tiny.card(metrics=metrics, calibrator=calibrator), MonitorConfig(), None)
    monitor.record("r", np.tile(np.array([[0.0, 0.0, 0.0, 5.0]], np.float32), (100, 1)))
    expected = monitor.report()["expected_accuracy"]
    assert expected["held_out_gap"] == pytest.approx(-0.03)
    assert expected["value"] == pytest.approx(np.exp(5) / (np.exp(5) + 3) - 0.03, abs=1e-6)


def test_class_shares_are_told_without_labels_where_labelled_rows_were_given(tiny: ModuleType) -> None:
    rng = np.random.default_rng(8)

    def rows(prior: list[float], n: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.choice(4, n, p=prior)
        return (rng.normal(size=(n, 4)) + 3 * np.eye(4)[labels]).astype(np.float32), labels

    known = KnownRows.of(*rows([0.25] * 4, 1500))
    monitor = Monitor(MODEL, tiny.card(), MonitorConfig(), None, given=known)
    monitor.record("june", rows([0.7, 0.1, 0.1, 0.1], 800)[0])
    monitor.flush()
    found = monitor.class_shares()
    assert found is not None
    assert found["shifted"]
    first = found["shares"][MODEL.classes[0]]
    assert first["low"] < 0.7 < first["high"] < first["low"] + 0.12
    assert MODEL.classes[0] in found["said"][0]
    assert Monitor(MODEL, tiny.card(), MonitorConfig(), None).class_shares() is None


def test_a_log_of_the_largest_logits_tells_no_shares_and_no_coverage(tiny: ModuleType, tmp_path: Path) -> None:
    rng, names = np.random.default_rng(8), tuple("abcdefgh")
    card = replace(tiny.card(), classes=names, prior=Prior())
    logits = rng.normal(size=(500, 8)).astype(np.float32)
    labels = logits.argmax(axis=1)
    coverage = {}
    for top in (None, 5):
        writer = FeedbackWriter(tmp_path / str(top), kept=Kept(top=top))
        monitor = Monitor(
            feedback.Model("m", "1", "sha", names), card, MonitorConfig(), writer, given=KnownRows.of(logits, labels)
        )
        monitor.record("june", logits)
        monitor.label(Labels([f"june/{k}" for k in range(500)], labels.tolist()))
        coverage[top] = monitor.report()["labelled"]["coverage"]
        assert monitor.report().get("logits_kept") == top
        shares = monitor.class_shares()
        assert shares is not None
        assert ("kept the 5 largest" in shares["said"][0]) == (top == 5)
        writer.close()
    assert coverage[None] is not None
    assert coverage[5] is None


def test_the_window_forgets(tiny: ModuleType) -> None:
    monitor = Monitor(MODEL, tiny.card(), MonitorConfig(window=100), None)
    for value in (0.0, 9.0):
        monitor.record(f"r{value}", np.tile(np.array([[value, 0, 0, 0]], np.float32), (100, 1)))
    assert monitor.report()["expected_accuracy"]["rows"] == 100
    assert monitor.report()["expected_accuracy"]["value"] > 0.99


def test_an_answer_that_is_not_a_number_leaves_the_figures_alone(make: Callable[..., Monitor], tmp_path: Path) -> None:
    """One caller's absurd input must not take the alarms and metrics of all."""
    monitor = make(tmp_path)
    odd = np.array([[np.nan] * 4, [np.inf, 0, 0, 0], [-np.inf] * 4], np.float32)
    for n, row in enumerate(odd):
        monitor.record(f"odd{n}", row[None])
    monitor.record("masked", np.array([[3.0, 1.0, 0.0, -np.inf]], np.float32))  # a class that a model rules out
    monitor.record("good", np.zeros((2, 4), np.float32))
    assert monitor.label(Labels(["good/0", "good/1", "masked", "odd0"], [0, 1, 3, 0])).states["odd0"] == "unknown"
    report = monitor.report()
    assert (report["rows"], report["not_finite"], report["labels"]) == (3, 3, 3)
    assert 0 < report["expected_accuracy"]["value"] < 1
    assert all(np.isfinite(v) for v in report["predicted_prior"].values())
    assert np.isfinite(report["labelled"]["nll"]["value"])
    out = Exposition()
    monitored(out, report, {})
    assert "NaN" not in out.text()
    (served,) = feedback.read_feedback(tmp_path).served
    assert served.ids == ("masked", "good/0", "good/1")


def test_a_label_right_after_its_answer_finds_it_whichever_thread_is_writing(
    make: Callable[..., Monitor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are handed over by one thread while another asks for them."""
    monitor = make(tmp_path)
    begun, go_on = threading.Event(), threading.Event()

    def slowly(id_: str, rows: int) -> list[str]:
        begun.set()
        assert go_on.wait(30)
        return row_ids(id_, rows)

    monkeypatch.setattr(monitor_module, "row_ids", slowly)
    monitor.record("r", np.zeros((1, 4), np.float32))
    flusher = threading.Thread(target=monitor.flush)
    flusher.start()
    assert begun.wait(30)
    states: list[dict[str, str]] = []
    labeller = threading.Thread(target=lambda: states.append(monitor.label(Labels(["r"], [2])).states))
    labeller.start()
    labeller.join(0.2)  # it waits for the row that is being written
    go_on.set()
    flusher.join()
    labeller.join()
    assert states == [{"r": "accepted"}]


def test_a_full_disk_loses_lines_not_figures_and_no_label_is_half_taken(
    make: Callable[..., Monitor], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = make(tmp_path)
    writer = monitor.writer
    assert writer is not None
    monitor.record("a", np.zeros((1, 4), np.float32))
    monitor.flush()
    line = writer._line

    def full(record: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer._line = full  # type: ignore[method-assign]
    for n in range(3):
        monitor.record(f"b{n}", np.zeros((2, 4), np.float32))
        monitor.flush()
    assert caplog.text.count("No space left") == 1  # not twice a second
    with pytest.raises(Refusal, match="No space left") as caught:
        monitor.label(Labels(["a", "b0/0"], [1, 1]))
    assert caught.value.status == 503
    assert monitor.labels == 0
    writer._line = line  # type: ignore[method-assign]
    assert monitor.label(Labels(["a", "b0/0"], [1, 1])).states == {"a": "accepted", "b0/0": "accepted"}
    monitor.record("c", np.zeros((1, 4), np.float32))
    report = monitor.report()
    assert (report["rows"], report["log_rows_lost"], report["labels"]) == (8, 6, 2)
    log = feedback.read_feedback(tmp_path)
    assert log.served[0].ids == ("a", "c")
    assert log.served[0].labels.tolist() == [1, -1]
    assert "6 rows" in caplog.text
