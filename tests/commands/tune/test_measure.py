"""The rule of the rates, on outcomes given by hand; the real server is in test_cli.py."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.commands.tune import measure
from calibrant.serve.callers.generator import Load, Outcome


def outcome(p99_ms: float, *, failed: int = 0) -> Outcome:
    return Outcome(2.0, 100, failed, 0, np.full(100, p99_ms / 1e3))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Load]:
    """The loads that were put on a server that is 10 ms slow at 20 requests a second, and 1 ms more for each more."""
    loads: list[Load] = []

    async def run(url: str, request: bytes, load: Load) -> Outcome:
        loads.append(load)
        assert load.rate is not None
        return outcome(10 + max(0.0, load.rate - 20))

    monkeypatch.setattr(measure, "run", run)
    return loads


def test_the_rate_falls_until_the_answers_come_in_time(seen: list[Load]) -> None:
    share, found = measure._in_time("", b"", 100.0, measure.SHARES, 0.05, 2.0)
    assert share == 0.55  # 45 ms; at 75 a second it was 65
    assert found.percentile(99) == pytest.approx(45.0)
    assert [load.rate for load in seen] == pytest.approx([90.0, 75.0, 55.0])
    assert all(load.at_random for load in seen)


def test_where_no_rate_is_in_time_it_is_none(seen: list[Load]) -> None:
    assert measure._in_time("", b"", 100.0, measure.SHARES, 0.005, 2.0)[0] == 0.0
    assert len(seen) == len(measure.SHARES)


def test_without_a_wish_one_load_is_enough_and_slow_files_are_watched_longer(seen: list[Load]) -> None:
    assert measure._in_time("", b"", 50.0, (0.7,), None, 2.0)[0] == 0.7
    assert seen[0].seconds == pytest.approx(300 / 35)
    measure._in_time("", b"", 1.0, (0.7,), None, 2.0)
    assert seen[1].seconds == measure.LONGEST


def test_failures_are_not_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(url: str, request: bytes, load: Load) -> Outcome:
        return outcome(1.0, failed=1)

    monkeypatch.setattr(measure, "run", run)
    assert measure._in_time("", b"", 100.0, (0.9, 0.5), 1.0, 2.0)[0] == 0.0
