from __future__ import annotations

import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from calibrant.serve.engine.session import Session
from calibrant.serve.models import batcher as batcher_module
from calibrant.serve.models.batcher import Batcher
from calibrant.serve.models.job import Job
from calibrant.serve.protocol.errors import DeadlinePassed, InternalError, Refusal

OUTPUTS = ("probabilities",)


class Held(Session):
    """A session whose runs wait for leave, so that a queue builds up behind the first."""

    def hold(self) -> None:
        self.leave, self.runs = threading.Event(), []  # type: ignore[var-annotated]

    def run(self, feeds: Any, outputs: Any = None) -> Any:
        if hasattr(self, "leave"):
            self.runs.append(len(feeds["images"]))
            assert self.leave.wait(60)
        return super().run(feeds, outputs)


def _held(path: Path) -> Held:
    session = Held(path, threads=1)
    session.hold()
    return session


def _job(pixels: Any, back: list[Job], **extra: Any) -> Job:
    return Job({"images": pixels}, len(pixels), OUTPUTS, back.append, **extra)


def _wait(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.002)


def test_what_waits_runs_together_and_each_gets_its_own_rows(model_file: Path, tiny: ModuleType) -> None:
    session = _held(model_file)
    batcher, back = Batcher(session, cap=8), []
    requests = [tiny.pictures(n, seed) for seed, n in enumerate((1, 2, 3, 1, 2, 4))]
    jobs = [_job(pixels, back) for pixels in requests]
    batcher.put(jobs[0])
    _wait(lambda: session.runs == [1])
    for job in jobs[1:]:
        batcher.put(job)
    session.leave.set()
    _wait(lambda: len(back) == 6)
    assert session.runs == [1, 8, 4]  # 2 + 3 + 1 + 2, then the 4 that would have burst the cap
    for job, pixels in zip(jobs, requests, strict=True):
        assert job.result is not None
        np.testing.assert_allclose(job.result["probabilities"], tiny.expected(pixels), atol=1e-6)
    batcher.close()


def test_a_lone_request_does_not_wait(model_file: Path, tiny: ModuleType) -> None:
    """A batcher that waited for company would always wait; a busy machine holds up some requests, never all."""
    batcher, waits = Batcher(Session(model_file, threads=1), cap=64), []
    while len(waits) < 500 and min(waits, default=1.0) > 0.002:
        back: list[Job] = []
        batcher.put(_job(tiny.pictures(1), back))
        _wait(lambda: back)  # noqa: B023
        waits.append(back[0].started - back[0].queued)
    assert min(waits) <= 0.002
    batcher.close()


class Paced(Held):
    """Waits for leave once; after that every run takes as long as it is told."""

    seconds = 0.0

    def run(self, feeds: Any, outputs: Any = None) -> Any:
        time.sleep(self.seconds)
        return super().run(feeds, outputs)


@pytest.mark.parametrize(("seconds", "together"), [(0.0, True), (0.005, False)])
def test_answers_are_held_for_three_milliseconds_and_only_behind_a_queue(
    seconds: float, together: bool, model_file: Path, tiny: ModuleType
) -> None:
    """Behind 0.3 s of queue, runs of 5 ms are handed over one by one, and short ones several at a time."""
    session, handed = Paced(model_file, threads=1), []
    session.hold()
    session.seconds = seconds
    batcher = Batcher(session, cap=1, deliver=handed.append)
    for n in range(20):
        batcher.put(_job(tiny.pictures(1, n), []))
    time.sleep(0.3)
    session.leave.set()
    _wait(lambda: sum(map(len, handed)) == 20)
    batcher.close()
    assert (max(map(len, handed)) > 1) is together
    handed.clear()


def test_an_answer_whose_successor_did_not_queue_is_not_held(model_file: Path, tiny: ModuleType) -> None:
    """The next request came 10 ms ago: this one waits for half a millisecond at most, though 3 ms is the limit."""
    session = _held(model_file)
    batcher = Batcher(session, cap=1)
    batcher.put(_job(tiny.pictures(1), []))
    _wait(lambda: session.runs == [1])
    now = time.monotonic()
    batcher._waiting.append(_job(tiny.pictures(1), [], queued=now - 0.01))
    assert not batcher._may_hold(now - 0.001)
    batcher._waiting[0].queued = now - 0.1
    assert batcher._may_hold(now - 0.001)
    batcher._waiting.clear()
    session.leave.set()
    batcher.close()


def test_only_the_poisonous_row_fails(tmp_path: Path, tiny: ModuleType) -> None:
    session = _held(tiny.write(tmp_path / "poison.onnx", gather_last=True))
    batcher, back = Batcher(session, cap=16), []
    good, bad = [tiny.pictures(1, seed) for seed in range(4)], tiny.pictures(1, 9)
    bad[0, 0, 0, 0] = 255  # beyond the table in the graph
    batcher.put(_job(good[0], back))
    _wait(lambda: session.runs == [1])
    jobs = [_job(pixels, back) for pixels in (good[1], bad, good[2], good[3])]
    for job in jobs:
        batcher.put(job)
    session.leave.set()
    _wait(lambda: len(back) == 5)
    assert isinstance(jobs[1].error, Refusal)
    for job, pixels in zip((jobs[0], *jobs[2:]), good[1:], strict=True):
        assert job.error is None
        assert job.result is not None
        np.testing.assert_allclose(job.result["probabilities"], tiny.expected(pixels), atol=1e-6)
    batcher.close()


def test_cancelled_and_late_requests_are_dropped_when_the_batch_is_formed(model_file: Path, tiny: ModuleType) -> None:
    session = _held(model_file)
    batcher, back = Batcher(session, cap=16), []
    batcher.put(_job(tiny.pictures(1), back))
    _wait(lambda: session.runs == [1])
    late = _job(tiny.pictures(1), back, deadline=time.monotonic() + 0.01)
    gone, kept = _job(tiny.pictures(1), back), _job(tiny.pictures(2), back)
    for job in (late, gone, kept):
        batcher.put(job)
    gone.cancelled = True
    time.sleep(0.03)
    session.leave.set()
    _wait(lambda: len(back) == 4)
    assert session.runs == [1, 2]
    assert isinstance(late.error, Refusal)
    assert late.error.status == 504
    assert gone.result is None
    assert kept.result is not None
    batcher.close()


def test_a_request_above_the_cap_runs_in_slices_and_answers_whole(model_file: Path, tiny: ModuleType) -> None:
    session = _held(model_file)
    session.leave.set()
    batcher = Batcher(session, cap=4)
    pixels = tiny.pictures(10)
    answer = batcher.run({"images": pixels}, 10, OUTPUTS)
    np.testing.assert_allclose(answer["probabilities"], tiny.expected(pixels), atol=1e-6)
    assert session.runs == [4, 4, 2]
    batcher.close()


def test_knob_tensors_of_one_row_or_of_each_stay_with_their_request(tmp_path: Path, tiny: ModuleType) -> None:
    """A file with runtime knobs: requests that send them batch together, each with its own; the others apart."""
    session = _held(tiny.write(tmp_path / "runtime.onnx", tiny.card(knobs="runtime"), runtime=True))
    assert session.required == ("images",)
    batcher, back = Batcher(session, cap=16), []
    pixels = [tiny.pictures(n, n) for n in (1, 2, 3, 2)]
    knobs: list[dict[str, Any]] = [
        {}, {"temperature": np.array([[0.5]], np.float32)},
        {"temperature": np.array([[1.0], [2.0], [4.0]], np.float32)}, {},
    ]  # fmt: skip
    jobs = [Job({"images": p, **k}, len(p), OUTPUTS, back.append) for p, k in zip(pixels, knobs, strict=True)]
    for job in jobs[:1]:
        batcher.put(job)
    _wait(lambda: session.runs == [1])
    for job in jobs[1:]:
        batcher.put(job)
    session.leave.set()
    _wait(lambda: len(back) == 4)
    assert session.runs == [1, 5, 2]
    wanted = [tiny.expected(pixels[0]), tiny.expected(pixels[1], 0.5),
              np.concatenate([tiny.expected(pixels[2][n : n + 1], t) for n, t in enumerate((1.0, 2.0, 4.0))]),
              tiny.expected(pixels[3])]  # fmt: skip
    for job, p in zip(jobs, wanted, strict=True):
        assert job.result is not None
        np.testing.assert_allclose(job.result["probabilities"], p, atol=1e-6)
    batcher.close()


def test_the_predicted_wait_grows_with_the_rows_ahead(model_file: Path, tiny: ModuleType) -> None:
    session = _held(model_file)
    batcher, back = Batcher(session, cap=1), []
    assert batcher.predicted_wait == 0.0
    batcher._row_seconds = 2.0
    for n in (1, 3, 5):
        batcher.put(_job(tiny.pictures(n), back))
    _wait(lambda: session.runs)
    assert 16.0 < batcher.predicted_wait <= 18.0
    session.leave.set()
    _wait(lambda: len(back) == 3)
    batcher.close()


def test_closing_finishes_what_waits(model_file: Path, tiny: ModuleType) -> None:
    session = _held(model_file)
    batcher, back = Batcher(session, cap=1), []
    for seed in range(5):
        batcher.put(_job(tiny.pictures(1, seed), back))
    session.leave.set()
    batcher.close(timeout=60)
    assert all(job.result is not None for job in back)
    assert len(back) == 5
    with pytest.raises(Refusal, match="unloaded"):
        batcher.put(_job(tiny.pictures(1), back))


class Calls(list[Any]):
    """An event loop's `call_soon`, one call at a time."""

    def next(self) -> None:
        self.pop(0)()


def _in_turn(path: Path, cap: int) -> tuple[Held, Batcher, Calls]:
    session, calls = _held(path), Calls()
    session.leave.set()
    batcher = Batcher(session, cap=cap, soon=calls.append)
    batcher._row_seconds = 0.001  # whatever was measured here
    return session, batcher, calls


def test_on_one_core_what_waits_runs_in_batches_where_it_was_put(model_file: Path, tiny: ModuleType) -> None:
    session, batcher, calls = _in_turn(model_file, cap=4)
    back: list[Job] = []
    threads = []
    jobs = [_job(tiny.pictures(n, n), back) for n in (1, 3, 2)]
    jobs[0].done = lambda job: (threads.append(threading.current_thread()), back.append(job))  # type: ignore[func-returns-value]
    for job in jobs:
        batcher.put(job)
    assert len(calls) == 1  # one turn for all that came in one round
    assert not session.runs
    calls.next()
    assert session.runs == [4]
    assert back == jobs[:2]
    assert threads == [threading.current_thread()]
    calls.next()
    assert session.runs == [4, 2]
    assert not calls
    assert batcher.idle
    assert (batcher.counts.rows, batcher.counts.executions) == (6, 2)
    for job, n in zip(jobs, (1, 3, 2), strict=True):
        assert job.result is not None
        np.testing.assert_allclose(job.result["probabilities"], tiny.expected(tiny.pictures(n, n)), atol=1e-6)
    batcher.close()


@pytest.mark.parametrize("case", ["many rows", "slow model", "many rows behind few", "slow by now"])
def test_on_one_core_long_work_leaves_the_event_loop_free(case: str, model_file: Path, tiny: ModuleType) -> None:
    session, batcher, calls = _in_turn(model_file, cap=4)
    if case == "slow model":
        batcher._row_seconds = 1.0
    back: list[Job] = []
    if case == "many rows behind few":
        batcher.put(_job(tiny.pictures(1), back))
    long = _job(tiny.pictures(4 if "slow" in case else 5), back)
    batcher.put(long)
    if case == "slow by now":
        batcher._row_seconds = 1.0
        ran_on: list[threading.Thread] = []
        long.done = lambda job: (ran_on.append(threading.current_thread()), back.append(job))  # type: ignore[func-returns-value]
        calls.next()
        _wait(lambda: ran_on)
        assert ran_on[0] is not threading.current_thread()
    if case == "many rows behind few":
        calls.next()
        assert len(back) == 1
    assert not calls
    _wait(lambda: long.result is not None and long in back)
    batcher.close()


def test_on_one_core_a_late_request_is_refused_and_the_poisonous_row_fails_alone(
    tmp_path: Path, tiny: ModuleType
) -> None:
    _, batcher, calls = _in_turn(tiny.write(tmp_path / "poison.onnx", gather_last=True), cap=16)
    back: list[Job] = []
    good, bad = tiny.pictures(1, 1), tiny.pictures(1, 9)
    bad[0, 0, 0, 0] = 255  # beyond the table in the graph
    late, poisonous, kept = _job(good, back, deadline=time.monotonic() - 1.0), _job(bad, back), _job(good, back)
    for job in (late, poisonous, kept):
        batcher.put(job)
    calls.next()
    assert [type(job.error) for job in (late, poisonous, kept)] == [DeadlinePassed, InternalError, type(None)]
    assert len(back) == 3
    assert batcher.idle
    batcher.close()


def test_on_one_core_closing_finishes_what_waits_and_the_turn_finds_nothing(model_file: Path, tiny: ModuleType) -> None:
    session, batcher, calls = _in_turn(model_file, cap=1)
    back: list[Job] = []
    for seed in range(3):
        batcher.put(_job(tiny.pictures(1, seed), back))
    batcher.close(timeout=60)  # as a server that drains does, from the loop's own thread
    assert all(job.result is not None for job in back)
    assert len(back) == 3
    for _ in range(len(calls)):
        calls.next()
    assert session.runs == [1, 1, 1]


def test_on_one_core_no_request_is_lost_between_the_turns_and_the_thread(model_file: Path, tiny: ModuleType) -> None:
    """Small and large requests by turns, so that both sides run; each is answered once, with its own rows."""
    _, batcher, calls = _in_turn(model_file, cap=2)
    back: list[Job] = []
    requests = [tiny.pictures(1 + n % 4, n) for n in range(200)]
    jobs = [_job(pixels, back) for pixels in requests]
    for n, job in enumerate(jobs):
        batcher.put(job)
        if n % 3 == 0 and calls:
            calls.next()
    while calls or len(back) < len(jobs):
        if calls:
            calls.next()
        time.sleep(0.0005)
    assert sorted(map(id, back)) == sorted(map(id, jobs))
    for job, pixels in zip(jobs, requests, strict=True):
        assert job.result is not None
        np.testing.assert_allclose(job.result["probabilities"], tiny.expected(pixels), atol=1e-6)
    assert batcher.idle
    batcher.close()


def test_the_predicted_wait_shrinks_while_a_batch_runs(
    model_file: Path, tiny: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = _held(model_file)
    batcher, back = Batcher(session, cap=4), []
    batcher._row_seconds = 2.0
    batcher.put(_job(tiny.pictures(4), back))
    _wait(lambda: session.runs)
    batcher.put(_job(tiny.pictures(1), back))
    started = batcher._running_since
    waits = []
    for after in (0.0, 3.0, 100.0):  # four rows of two seconds: later than planned they are as good as done
        monkeypatch.setattr(batcher_module.time, "monotonic", lambda at=started + after: at)
        waits.append(batcher.predicted_wait)
    monkeypatch.undo()
    assert waits == pytest.approx([10.0, 7.0, 2.0])
    session.leave.set()
    _wait(lambda: len(back) == 2)
    batcher.close()


def test_the_pace_follows_the_machine_slowly(model_file: Path, tiny: ModuleType) -> None:
    """A tenth of the way for each batch: one slow batch does not make the server refuse."""
    batcher, back = Batcher(Session(model_file, threads=1), cap=4), []
    batcher._row_seconds = 1.0
    job = _job(tiny.pictures(4), back)
    job.queued, job.started, job.finished = 0.0, 1.0, 13.0  # three seconds a row
    batcher._count([job])
    assert batcher._row_seconds == pytest.approx(1.2)
    batcher.close()
