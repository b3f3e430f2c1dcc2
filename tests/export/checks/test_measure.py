"""Speed of files beside one another."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibrant.export.checks import measure
from calibrant.export.checks.measure import time_together


def test_one_call_counted_too_short_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first file takes 40 and the second 20; one call of the first counts as 1, as on a CPU clock under load."""
    now, calls = {"cpu": 0.0, "wall": 0.0}, {"slow": 0}

    class Session:
        def __init__(self, path: Path) -> None:
            self.seconds = 40.0 if path.name == "slow" else 20.0

        def run(self, _: Any, feed: dict[str, np.ndarray]) -> None:
            calls["slow"] += self.seconds == 40.0
            now["cpu"] += 1.0 if calls["slow"] == 20 and self.seconds == 40.0 else self.seconds
            now["wall"] += self.seconds

    clock = SimpleNamespace(process_time=lambda: now["cpu"], perf_counter=lambda: now["wall"])
    monkeypatch.setattr(measure, "time", clock)
    monkeypatch.setattr(measure, "session", Session)
    slow, fast = time_together([Path("slow"), Path("fast")], np.zeros((8, 2)), seconds=1000.0)
    assert calls["slow"] > 20
    assert (slow.one, slow.large, fast.one, fast.large) == (40.0, 40.0, 20.0, 20.0)
