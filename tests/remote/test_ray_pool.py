"""How items are shared out, in a time of its own: what a real cluster would take minutes for, or cannot be made to do
at a given moment. The real one is in tests/serve/batch/test_ray_cluster.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from calibrant.errors import DataError, ModelError
from calibrant.remote import ray_pool
from calibrant.remote.ray_pool import Pool


class RayError(Exception):
    cause: Exception | None = None


class RayActorError(RayError):
    pass


class ObjectLostError(RayError):
    pass


@dataclass(eq=False)
class Call:
    done: float | None
    error: Exception | None
    value: tuple[int, Any]


class Ray:
    """Actors that do one call after the other, each in a time that the test says; None: never."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayActorError=RayActorError, NodeDiedError=type("A", (RayError,), {}),
        WorkerCrashedError=type("B", (RayError,), {}), OutOfMemoryError=type("C", (RayError,), {}),
        ActorUnschedulableError=type("D", (RayError,), {}), ObjectLostError=ObjectLostError,
        GetTimeoutError=type("E", (RayError,), {}),
    )  # fmt: skip

    def __init__(self, takes: Callable[[int, Any], float | None | Exception]) -> None:
        self.now, self.takes = 0.0, takes
        self.started, self.killed = 0, list[int]()
        self.free: dict[int, float | None] = {}  # when an actor will be done with all it has
        self.given: list[tuple[int, Any, float]] = []

    def start(self) -> Any:
        number, self.started = self.started, self.started + 1
        self.free[number] = 0.0
        ready = SimpleNamespace(remote=lambda: self._call(number, "ready"))
        work = SimpleNamespace(remote=lambda item: self._call(number, item))
        return SimpleNamespace(ready=ready, work=work, number=number)

    def _call(self, number: int, item: Any) -> Call:
        self.given.append((number, item, self.now))
        took, free = self.takes(number, item), self.free[number]
        error = took if isinstance(took, Exception) else None
        if error is None and (took is None or free is None):
            done = None
        else:
            done = max(self.now, free or 0.0) + (0.1 if error is not None else took)  # type: ignore[operator]
        self.free[number] = done
        return Call(done, error, (number, item))

    def wait(self, refs: list[Call], timeout: float) -> tuple[list[Call], list[Call]]:
        at, first = min(
            ((r.done, r) for r in refs if r.done is not None), key=lambda pair: pair[0], default=(None, None)
        )
        if at is None or first is None or at > self.now + timeout:
            self.now += timeout
            return [], refs
        self.now = max(self.now, at)
        return [first], [r for r in refs if r is not first]

    def get(self, ref: Call, timeout: float) -> Any:
        if ref.error is not None:
            raise ref.error
        return ref.value

    def kill(self, handle: Any) -> None:
        self.killed.append(handle.number)


@pytest.fixture
def spread(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Ray, list[tuple[int, Any]]]]:
    def run(takes: Any, items: int, count: int, **options: Any) -> tuple[Ray, list[tuple[int, Any]]]:
        ray = Ray(takes)
        monkeypatch.setattr(ray_pool.time, "monotonic", lambda: ray.now)
        pool = Pool(ray, ray.start, list(range(items)), count=count, where="here",
                    name=lambda item: (f"item {item}", None), **options)  # fmt: skip
        return ray, list(pool.run())

    return run


def work(ray: Ray) -> list[tuple[int, Any]]:
    return [(number, item) for number, item, _ in ray.given if item != "ready"]


def test_no_actor_waits_for_us_and_the_last_items_do_not_queue(spread: Any) -> None:
    ray, found = spread(lambda number, item: 1.0, 11, 2)
    assert sorted(item for item, _ in found) == list(range(11))
    assert ray.now == 1.0 + 6.0  # the start, and six rounds of two
    assert len(work(ray)) == 11
    assert sorted(ray.killed) == [0, 1]
    assert [item for _, item, at in ray.given if at == 1.0] == [0, 1, 2, 3]  # two each at once


def test_what_a_lost_actor_had_goes_first_and_one_replacement_is_asked_for(spread: Any) -> None:
    def takes(number: int, item: Any) -> float | None | Exception:
        if number == 2:
            return None  # no machine is left for it
        return RayActorError("Socket closed") if number == 1 and item != "ready" else 1.0

    ray, found = spread(takes, 12, 2)
    assert sorted(item for item, _ in found) == list(range(12))
    assert ray.started == 3
    lost = [item for number, item in work(ray) if number == 1]
    begun = [item for number, item in work(ray) if number == 0]
    assert lost == [2, 3]
    assert begun[:4] == [0, 1, 2, 3]
    assert sorted(ray.killed) == [0, 1, 2]


def test_what_is_late_is_begun_again_and_answers_once(spread: Any) -> None:
    """The second actor stops at its third item; when it wakes up its answers are dropped."""

    def takes(number: int, item: Any) -> float | None:
        return 18.0 if number == 1 and item == 5 else 1.0

    ray, found = spread(takes, 16, 2)
    assert sorted(item for item, _ in found) == list(range(16))
    begun = [item for _, item in work(ray)]
    assert [item for item in range(16) if begun.count(item) > 1] == [5, 7]
    assert len(begun) == 16 + 2
    assert ray.now < 16


def test_a_slow_machine_keeps_its_work(spread: Any) -> None:
    """Three times as slow is not late, and where all are as slow as ever nothing is done twice."""
    for pace in (1.0, 3.0):
        ray, found = spread(lambda number, item, pace=pace: pace if number else 1.0, 20, 3)
        assert len(found) == len(work(ray)) == 20


def test_nothing_is_late_before_anything_is_known(spread: Any) -> None:
    ray, found = spread(lambda number, item: 1.0 if number == 0 else 30.0, 3, 2)
    assert len(work(ray)) == len(found) == 3


def test_jobs_are_not_begun_twice_nor_kept_behind_another(spread: Any) -> None:
    ray, found = spread(lambda number, item: 40.0 if item == 0 else 1.0, 6, 2, depth=1, steal=False)
    assert len(found) == len(work(ray)) == 6
    assert [item for number, item in work(ray) if number == 0] == [0]


def test_results_that_wait_for_their_turn_are_bounded(spread: Any) -> None:
    ray, found = spread(lambda number, item: 40.0 if item == 0 else 1.0, 20, 2, ahead=6, steal=False)
    assert max(item for item, _ in found[:6]) <= 6
    assert len(found) == 20
    ray, found = spread(lambda number, item: None if item == 0 and number == 0 else 1.0, 20, 2, ahead=6)
    assert len(found) == 20  # the first one stopped, and nobody waits for its turn for ever


def test_an_item_that_ends_its_actors_is_named(spread: Any) -> None:
    with pytest.raises(ModelError, match=r"here: item 4 ended 3 actors of Ray in turn \(killed\).*kept"):
        spread(lambda number, item: RayActorError("killed") if item == 4 else 1.0, 12, 2)


def test_what_an_actor_was_lost_at_is_tried_again_alone(spread: Any) -> None:
    """Its answer may have been lost with an actor that the next item ended."""
    lost = [RayActorError("killed")]

    def seconds(number: int, item: Any) -> float:
        return 0.7 + 0.2 * number if item != "ready" else 1.0

    ray, found = spread(lambda number, item: lost.pop() if item == 4 and lost else seconds(number, item), 14, 3)
    assert sorted(item for item, _ in found) == list(range(14))
    *_, (number, _, at) = [given for given in ray.given if given[1] == 4]
    free = 0.0
    for _, item, given in [call for call in ray.given if call[0] == number]:
        if item == 4:
            assert free <= given  # it had nothing else
        elif given >= at:
            assert given >= at + seconds(number, 4)  # and got nothing else
        free = max(free, given) + seconds(number, item)


def test_a_result_that_was_lost_with_its_machine_is_made_again(spread: Any) -> None:
    lost = [ObjectLostError("gone")]
    ray, found = spread(lambda number, item: lost.pop() if item == 3 and lost else 1.0, 6, 1)
    assert len(found) == 6
    assert ray.started == 1


def test_actors_that_end_before_they_do_anything_are_not_started_for_ever(spread: Any) -> None:
    with pytest.raises(ModelError, match=r"7 actors of Ray ended.*nothing was done \(no memory\)"):
        spread(lambda number, item: RayActorError("no memory"), 5, 2)


def test_nobody_ready_for_long_is_an_error_and_few_are_not(spread: Any) -> None:
    with pytest.raises(ModelError, match="no actor was ready in 300 s"):
        spread(lambda number, item: None, 5, 2)
    ray, found = spread(lambda number, item: None if number else 200.0, 5, 3)
    assert len(found) == 5


def test_a_fault_of_the_work_itself_is_not_repeated(spread: Any) -> None:
    fault = RayError("a trace")
    fault.cause = DataError("is damaged", where="a.png")
    with pytest.raises(DataError, match="a.png: is damaged"):
        spread(lambda number, item: fault if item == 2 else 1.0, 5, 2)

    def refuse(found: Any) -> None:
        raise DataError("strange")

    with pytest.raises(DataError, match="strange"):
        spread(lambda number, item: 1.0, 5, 2, accept=refuse)
