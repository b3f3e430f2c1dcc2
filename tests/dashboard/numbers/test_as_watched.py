"""The server and the dashboard say the same of one log: the same alarms at the same rows, the same intervals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.feedback import Model, read_feedback
from calibrant.artifacts.feedback_compaction import compact
from calibrant.artifacts.feedback_logits import Kept
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.artifacts.model_card import ModelCard
from calibrant.calibration.monitoring.alarms import served_log_p
from calibrant.calibration.monitoring.baseline import KnownRows
from calibrant.calibration.monitoring.watched_features import WatchedFeatures
from calibrant.dashboard.numbers import traffic
from calibrant.images.preprocessing import Preprocessing
from calibrant.serve.monitor.config import MonitorConfig
from calibrant.serve.monitor.features import ServedFeatures
from calibrant.serve.monitor.labels import Labels
from calibrant.serve.monitor.log.history import Histories
from calibrant.serve.monitor.monitor import Monitor

CLASSES = ("auk", "bittern", "crane", "dunlin")
CARD = ModelCard(CLASSES, Preprocessing((8, 8), 8))


def _rows(n: int, rng: np.random.Generator, *, sharper: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Served logits, biased as those of real models, and labels from flatter probabilities."""
    true = rng.normal(0, 2, (n, 4))
    labels = (true / sharper + rng.gumbel(size=true.shape)).argmax(axis=1)
    return (true * sharper**0.5 + np.array([0.4, -0.4, 0.2, -0.2])).astype(np.float32), labels


def _serve(monitor: Monitor, rng: np.random.Generator, name: str, *, turns: int = 3000, rows: int = 5000) -> None:
    """Batches of requests; labels come later, in any order, some twice, some corrected, some never."""
    waiting: list[tuple[str, int]] = []
    for first in range(0, rows, 250):
        logits, labels = _rows(250, rng, sharper=1.0 if first < turns else 3.0)
        for k in range(0, 250, 5):
            monitor.record(f"{name}{first + k}", logits[k : k + 5])
        monitor.flush()
        ids = [f"{name}{first + k - k % 5}/{k % 5}" for k in range(250)]
        waiting += [(ids[k], int(labels[k])) for k in rng.permutation(250)[:200]]
        rng.shuffle(waiting)  # type: ignore[arg-type]
        now, waiting = waiting[:180], waiting[180:]
        monitor.label(Labels([i for i, _ in now], [y for _, y in now]))
        monitor.label(Labels([i for i, _ in now[:3]], [y for _, y in now[:2]] + [(now[2][1] + 1) % 4]))


def _agree(monitor: Monitor, folder: Path) -> traffic.Traffic:
    (served,) = read_feedback(folder).served
    found = traffic.summarise(served, CARD)
    assert found.alarms == monitor.alarms.states()
    said = monitor.report()
    assert found.recent.rows == said["expected_accuracy"]["rows"]
    for bound, value in found.recent.expected.to_dict().items():
        assert said["expected_accuracy"][bound] == pytest.approx(value, abs=1e-12)
    assert found.recent.labelled is not None
    for figure, value in found.recent.labelled.to_dict().items():
        expected = said["labelled"][figure]
        assert expected == (value if figure in ("rows", "coverage") else pytest.approx(value, abs=1e-6)), figure
    return found


@pytest.mark.parametrize("given", [0, 300, 2000], ids=["own", "beginning", "given"])
@pytest.mark.parametrize("seed", range(4))
def test_alarms_rows_and_intervals_are_the_same(given: int, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    logits, labels = _rows(given, rng)
    known = KnownRows.of(served_log_p(logits), labels) if given else None
    writer = FeedbackWriter(tmp_path)
    monitor = Monitor(Model("birds", "1", "sha", CLASSES), CARD, MonitorConfig(), writer, given=known)
    _serve(monitor, rng, "r")
    writer.close()
    found = _agree(monitor, tmp_path)
    assert found.alarms["calibration"].fired_at is not None  # else it would be no test
    assert found.alarms["confidence"].fired_at is not None


@pytest.mark.parametrize("kept", [Kept(half=True), Kept(top=5), Kept(half=True, top=5)])
def test_a_log_that_keeps_less_says_the_same_as_its_server(kept: Kept, tmp_path: Path) -> None:
    """Recent rows are counted from memory, older ones from the log, and the dashboard has the log alone."""
    rng = np.random.default_rng(11)
    names = tuple("abcdefgh")
    card = ModelCard(names, Preprocessing((8, 8), 8))
    writer = FeedbackWriter(tmp_path, kept=kept)
    monitor = Monitor(Model("birds", "1", "sha", names), card, MonitorConfig(), writer)
    for first in range(0, 4000, 250):
        logits = rng.normal(0, 2, (250, 8)).astype(np.float32)
        labels = (logits / (1.0 if first < 2000 else 2.5) + rng.gumbel(size=logits.shape)).argmax(axis=1)
        for k in range(250):
            monitor.record(f"r{first + k}", logits[k : k + 1])
        monitor.flush()
        if first % 500:
            monitor.forget_recent()
        monitor.label(Labels([f"r{first + k}" for k in range(200)], labels[:200].tolist()))
    writer.close()
    (served,) = read_feedback(tmp_path).served
    found = traffic.summarise(served, card)
    assert found.alarms == monitor.alarms.states()
    assert found.alarms["calibration"].fired_at is not None
    said = monitor.report()["labelled"]
    assert found.recent.labelled is not None
    assert said["nll"]["value"] == pytest.approx(found.recent.labelled.nll.value, abs=1e-6)
    assert said["ece"]["value"] == pytest.approx(found.recent.labelled.ece.value, abs=1e-6)


def test_settings_and_a_new_start_are_read_back(tmp_path: Path) -> None:
    """What a server saw before its restart is past; labels for what the last one predicted count in this one."""
    rng, last = np.random.default_rng(7), None
    for start, config in enumerate((MonitorConfig(), MonitorConfig(window=300, alpha=0.1, horizon=700))):
        writer = FeedbackWriter(tmp_path, segment_bytes=50_000)  # several segments
        histories = Histories(tmp_path)
        histories.restore(writer.wrote)
        monitor = Monitor(Model("birds", "1", "sha", CLASSES), CARD, config, writer, history=histories.of("birds"))
        if last is not None:
            monitor.label(Labels([last], [1]))
        _serve(monitor, rng, f"s{start}-", turns=700, rows=1500)
        last = f"late{start}"
        monitor.record(last, np.zeros((1, 4), np.float32))
        monitor.flush()
        writer.close()
    found = _agree(monitor, tmp_path)
    assert found.recent.labelled is not None
    assert found.recent.labelled.rows == 300
    assert found.rows == 3002


def test_a_log_that_does_not_say_has_the_alarms_of_a_server_that_says_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    logits, labels = _rows(4000, rng, sharper=2.5)
    writer = FeedbackWriter(tmp_path)
    writer.predictions(Model("birds", "1", "sha", CLASSES), [f"r{k}" for k in range(4000)], list(range(4000)), logits)
    writer.labels("birds", [f"r{k}" for k in range(4000)], labels.tolist())
    writer.close()
    monitor = Monitor(Model("birds", "1", "sha", CLASSES), CARD, MonitorConfig(), None)
    for k in range(4000):
        monitor.record(f"r{k}", logits[k : k + 1])
    monitor.label(Labels([f"r{k}" for k in range(4000)], labels.tolist()))
    _agree(monitor, tmp_path)


def test_a_request_that_came_twice_is_traffic_twice_and_labelled_once(tmp_path: Path) -> None:
    """Retries under the same id: the server cannot know them for what they are, and the reader counts as it did."""
    rng = np.random.default_rng(5)
    writer = FeedbackWriter(tmp_path)
    monitor = Monitor(Model("birds", "1", "sha", CLASSES), CARD, MonitorConfig(), writer)
    for first in range(0, 5000, 250):
        logits, labels = _rows(250, rng, sharper=1.0 if first < 3000 else 3.0)
        for k in range(250):
            monitor.record(f"r{first + k}", logits[k : k + 1])
            if k % 3 == 0:  # once more, at times with another answer, as after a change of the picture
                monitor.record(f"r{first + k - k % 2}", logits[k : k + 1] + k % 2)
        monitor.label(Labels([f"r{first + k}" for k in range(200)], labels[:200].tolist()))
    monitor.flush()
    writer.close()
    found = _agree(monitor, tmp_path)
    assert found.rows == 5000
    assert found.alarms["confidence"].rows > 5000
    assert found.alarms["confidence"].fired_at is not None


@pytest.mark.parametrize("given", [True, False], ids=["given", "own"])
def test_features_drift_at_the_same_row(given: bool, tmp_path: Path) -> None:
    """With rows that have none, requests that came twice, a start before that watched no features, and a compaction."""
    rng, width = np.random.default_rng(9), 30
    normal = rng.normal(size=(4000, width)).astype(np.float32) if given else None
    model, folder = Model("birds", "1", "sha", CLASSES), tmp_path / "log"
    for start, features in enumerate((None, ServedFeatures(WatchedFeatures.of(normal, width, seed=4), "watched"))):
        writer = FeedbackWriter(folder, segment_bytes=100_000)
        monitor = Monitor(model, CARD, MonitorConfig(), writer, features=features)
        for first in range(0, 6000 if start else 500, 250):
            logits, labels = _rows(250, rng)
            x = rng.normal(size=(250, width)).astype(np.float32)
            x[::2] += 1.5 * (first >= 4000)
            for k in range(250):
                told = None if k % 20 == 7 else x[k : k + 1]
                again = k - k % 2 if k % 30 == 1 else k
                monitor.record(f"s{start}-{first + again}", logits[k : k + 1], None, told)
            monitor.flush()
            monitor.label(Labels([f"s{start}-{first + k}" for k in range(2, 202, 2)], labels[2:202:2].tolist()))
        writer.close()
    found = _agree(monitor, folder)
    assert found.alarms["features"].rows < found.alarms["confidence"].rows
    assert found.alarms["features"].raised_at is not None
    assert found.alarms["confidence"].fired_at is None
    assert 3700 < found.onsets["features"].began < found.onsets["features"].fired
    done = compact(folder)
    assert (done.segments > 2, done.kept) == (True, 0)
    assert _agree(monitor, folder).alarms == found.alarms
