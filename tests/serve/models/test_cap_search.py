"""Larger runs are tried only where they wait anyway, and taken only where they are faster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from calibrant.serve.engine.batch_curve import BatchCurve, BatchPoint
from calibrant.serve.engine.session import Session
from calibrant.serve.models.batcher import Batcher
from calibrant.serve.models.cap_search import EVERY, CapSearch
from calibrant.serve.models.job import Job


def cut(cap: int = 8) -> BatchCurve:
    return BatchCurve((BatchPoint(1, 1.0), BatchPoint(cap, 1.2)), False)


def serve(search: CapSearch, seconds: Callable[[int], float], runs: int, waiting: int = 1000) -> list[int]:
    done = []
    for _ in range(runs):
        rows = min(waiting, search.goal(waiting, 0.001))
        search.ran(rows, seconds(rows))
        done.append(rows)
    return done


def test_it_grows_as_long_as_larger_runs_are_faster() -> None:
    told: list[BatchCurve] = []
    search = CapSearch(cut(), told.append)
    serve(search, lambda n: 1.0 + 0.02 * n if n <= 32 else 0.1 * n, 1000)
    assert search.cap == 32
    assert search.over
    assert [curve.cap for curve in told] == [16, 32, 32]
    assert told[-1].whole
    assert {p.rows for p in told[-1].points} >= {1, 8, 16, 32, 64}


def test_one_run_in_four_is_a_trial_and_none_where_little_waits() -> None:
    search = CapSearch(cut(), lambda curve: None)
    assert serve(search, lambda n: float(n), EVERY * 2) == [8, 8, 8, 16, 8, 8, 8, 16]
    assert set(serve(CapSearch(cut(), lambda curve: None), lambda n: 1.0, 50, waiting=15)) == {8}


def test_the_cap_stays_where_larger_runs_are_no_faster() -> None:
    search = CapSearch(cut(), lambda curve: None)
    serve(search, lambda n: 0.1 * n, EVERY * 3)
    assert (search.cap, search.over) == (8, False)
    serve(search, lambda n: 0.1 * n, EVERY * 3 * (8 + 64))
    assert (search.cap, search.over) == (8, True)


def test_a_machine_that_was_busy_at_the_first_trial_does_not_decide() -> None:
    search = CapSearch(cut(), lambda curve: None)
    serve(search, lambda n: 0.1 * n, EVERY * 3)
    serve(search, lambda n: 1.0, EVERY * 3 * 8)
    assert search.cap >= 16


def test_a_whole_curve_is_believed() -> None:
    whole = BatchCurve((BatchPoint(1, 1.0), BatchPoint(2, 2.5)), True)
    assert CapSearch(whole, lambda curve: None).over
    assert CapSearch(BatchCurve(whole.points, False), lambda curve: None).over  # the larger size is known to be slower
    assert CapSearch(cut(64), lambda curve: None).over


def test_a_run_that_would_take_too_long_is_not_tried() -> None:
    search = CapSearch(cut(), lambda curve: None)
    assert {search.goal(1000, 0.2) for _ in range(20)} == {8}


def test_runs_that_fill_little_of_a_size_do_not_count() -> None:
    search = CapSearch(cut(), lambda curve: pytest.fail("nothing was measured"))
    for _ in range(20):
        search.ran(5, 100.0)
        search.ran(17, 0.001)


class Dense(Session):
    """Every run takes the same time, whatever its rows, as where reading the weights is all the work."""

    def run(self, feeds: object, outputs: object = None) -> object:  # type: ignore[override]
        import time

        time.sleep(0.02)
        return super().run(feeds, outputs)  # type: ignore[arg-type]


def test_a_busy_batcher_finds_the_larger_cap(model_file: Path, tiny: ModuleType) -> None:
    session = Dense(model_file, threads=1)
    session.curve = BatchCurve((BatchPoint(1, 0.02), BatchPoint(2, 0.02)), False)
    session.cap = 2
    told: list[BatchCurve] = []
    batcher, back = Batcher(session, better=told.append), list[Job]()
    picture = tiny.pictures(1)
    for _ in range(600):
        batcher.put(Job({"images": picture}, 1, ("probabilities",), back.append))
    batcher.close(timeout=60)
    assert len(back) == 600
    assert batcher.cap > 8
    assert told[-1].cap == batcher.cap


def test_a_cap_that_was_asked_for_stays(model_file: Path, tiny: ModuleType) -> None:
    session = Dense(model_file, threads=1)
    session.curve = BatchCurve((BatchPoint(1, 0.02), BatchPoint(2, 0.02)), False)
    batcher, back = Batcher(session, cap=2), list[Job]()
    for _ in range(60):
        batcher.put(Job({"images": tiny.pictures(1)}, 1, ("probabilities",), back.append))
    batcher.close(timeout=60)
    assert batcher.cap == 2
    assert max(batcher.batch_sizes) == 2
