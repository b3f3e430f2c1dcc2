"""A worker takes in what the others predicted, and labels wait for a file that it is still loading."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibrant.artifacts import feedback
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.serve import control as control_module
from calibrant.serve.control import Control
from calibrant.serve.models.repository import Repository
from calibrant.serve.monitor.config import MonitorConfig
from calibrant.serve.monitor.labels import Labels
from calibrant.serve.monitor.log import index as log_index
from calibrant.serve.monitor.log import known_labels
from calibrant.serve.monitor.log_follower import LogFollower
from calibrant.serve.monitor.monitor import Monitor
from calibrant.serve.monitor.recent_rows import RecentRows
from calibrant.serve.protocol.errors import NotFound, NotReady

CLASSES = ("auk", "bittern", "crane", "dunlin")
OLD, NEW = (feedback.Model("birds", v, f"sha-{v}", CLASSES) for v in "12")
ROWS = np.zeros((2, 4), np.float32)


class Leader:
    """The worker that takes the labels, with version 1; another one already writes rows of version 2."""

    def __init__(self, folder: Path, card: Any) -> None:
        self.card, self.own, self.other = card, FeedbackWriter(folder), FeedbackWriter(folder)
        self.monitors = [Monitor(OLD, card, MonitorConfig(), self.own)]
        self.history = self.monitors[0].history
        self.follower = LogFollower(folder, self.own.wrote, self.monitors)
        self.control = Control(Repository())
        self.control.monitors, self.control.awaits = self.monitors, self.follower.awaits
        self.control.flush = self.follower.round
        self.control.others = SimpleNamespace(leads=True, flush=self._flushed)  # type: ignore[assignment]
        self.model: Any = SimpleNamespace(name="birds", require_monitor=lambda: self.monitors[0])

    async def _flushed(self) -> None:
        """The other worker has nothing in memory."""

    def load(self) -> None:
        self.monitors.append(Monitor(NEW, self.card, MonitorConfig(), self.own, history=self.history))

    def label(self, *ids: str) -> dict[str, Any]:
        return asyncio.run(self.control.label(self.model, Labels(ids, [1] * len(ids)), pinned=False))


@pytest.fixture
def leader(tmp_path: Path, tiny: ModuleType) -> Iterator[Leader]:
    made = Leader(tmp_path, tiny.card())
    yield made
    made.own.close()
    made.other.close()


def test_rows_of_a_file_that_is_still_being_loaded_are_awaited_and_taken_in(leader: Leader) -> None:
    leader.other.predictions(NEW, ["a", "b"], [1.0, 1.0], ROWS)
    leader.follower.round()
    assert leader.follower.awaits(["x", "b"])
    assert not leader.follower.awaits(["x"])
    leader.load()
    leader.follower.round()
    assert not leader.follower.awaits(["a", "b"])
    assert leader.label("a", "b")["accepted"] == 2


def test_labels_wait_for_a_version_that_only_another_worker_has(leader: Leader) -> None:
    leader.other.predictions(NEW, ["a", "b"], [1.0, 1.0], ROWS)
    leader.other.predictions(OLD, ["c", "d"], [1.0, 1.0], ROWS)
    later = threading.Timer(0.5, leader.load)
    later.start()
    assert leader.label("a", "c", "nobody's") == {
        "accepted": 2, "repeated": 0, "changed": 0, "unknown": ["nobody's"],
    }  # fmt: skip
    later.join()
    assert leader.label("a", "c", "b") == {"accepted": 1, "repeated": 2, "changed": 0, "unknown": []}


def test_labels_do_not_wait_for_ever_nor_for_ids_that_nobody_wrote(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "LOADING_SECONDS", 0.3)
    leader.other.predictions(NEW, ["a", "b"], [1.0, 1.0], ROWS)
    refused: list[tuple[type[Exception], Callable[[], object]]] = [
        (NotReady, lambda: leader.label("a")), (NotFound, lambda: leader.label("x")),
    ]  # fmt: skip
    for kind, ask in refused:
        with pytest.raises(kind):
            ask()


def test_labels_come_again_once_an_earlier_log_is_read(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_module, "RESTORE_SECONDS", 0.1)
    leader.other.predictions(OLD, ["a"], [1.0], ROWS[:1])
    read = threading.Event()
    leader.control.restored = read.is_set
    with pytest.raises(NotReady, match="still being read"):
        leader.label("a")
    read.set()
    assert leader.label("a")["accepted"] == 1


def _bytes_held(*roots: Any) -> int:
    """Of all objects that these lead to, each once; no modules, classes and functions."""
    seen, waiting, total = {id(roots)}, list(roots), 0
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, type | ModuleType | FunctionType | BuiltinFunctionType):
            continue
        seen.add(id(found))
        total += sys.getsizeof(found)
        waiting += gc.get_referents(found)
        if isinstance(found, np.ndarray) and found.base is not None:
            waiting.append(found.base)
    return total


def test_answers_and_labels_leave_nothing_in_memory(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two workers that write in turns, a tenth of the rows with labels; what takes a fixed room is full after a
    third of them. 30 bytes an answer stayed when each block left the path of its segment, and 12 a label."""
    monkeypatch.setattr(log_index, "_OPEN_ROWS", 2048)
    monkeypatch.setattr(known_labels, "_SLOTS", 2048)
    monitor = leader.monitors[0] = Monitor(OLD, leader.card, MonitorConfig(window=100), leader.own)
    monitor._recent = RecentRows(500)
    held, logits = list[int](), np.random.default_rng(0).normal(0, 9, (20, 4)).astype(np.float32)
    for n in range(3000):
        for k in range(10):
            monitor.record(f"own {n}/{k}", logits[k : k + 1])
        monitor.flush()
        leader.other.predictions(OLD, [f"other {n}/{k}" for k in range(10)], [0.0] * 10, logits[10:])
        leader.follower.round()
        assert monitor.label(Labels([f"own {n}/3", f"other {n}/3"], [n % 4, n % 4])).count("accepted") == 2
        if n % 20 == 19:
            held.append(_bytes_held(monitor._recent, monitor.history, monitor.window, monitor.alarms))
    assert monitor.rows == 60_000
    third = len(held) // 3
    assert max(held[2 * third :]) - max(held[third : 2 * third]) < 12_000  # 20,000 answers and 2,000 labels
    assert monitor.label(Labels(["own 0/3", "other 700/3"], [0, 0])).count("repeated") == 2
    assert monitor.label(Labels(["own 1/4", "other 1/4"], [0, 0])).count("accepted") == 2
