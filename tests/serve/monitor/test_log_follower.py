"""A worker takes in what the others predicted, and labels wait for a file that it is still loading."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
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
from calibrant.serve.monitor.log_follower import LogFollower
from calibrant.serve.monitor.monitor import Monitor
from calibrant.serve.protocol.errors import NotFound, NotReady

CLASSES = ("auk", "bittern", "crane", "dunlin")
OLD, NEW = (feedback.Model("birds", v, f"sha-{v}", CLASSES) for v in "12")
ROWS = np.zeros((2, 4), np.float32)


class Leader:
    """The worker that takes the labels, with version 1; another one already writes rows of version 2."""

    def __init__(self, folder: Path, card: Any) -> None:
        self.card, self.own, self.other = card, FeedbackWriter(folder), FeedbackWriter(folder)
        self.monitors = [Monitor(OLD, card, MonitorConfig(), self.own)]
        self.follower = LogFollower(folder, self.own.wrote, self.monitors)
        self.control = Control(Repository())
        self.control.monitors, self.control.awaits = self.monitors, self.follower.awaits
        self.control.flush = self.follower.round
        self.control.others = SimpleNamespace(leads=True, flush=self._flushed)  # type: ignore[assignment]
        self.model: Any = SimpleNamespace(name="birds", require_monitor=lambda: self.monitors[0])

    async def _flushed(self) -> None:
        """The other worker has nothing in memory."""

    def load(self) -> None:
        self.monitors.append(Monitor(NEW, self.card, MonitorConfig(), self.own))

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
