"""Work for actors of Ray, shared out by this process so that no machine that is lost, frozen or late holds up the rest.

Ray itself neither restarts an actor nor repeats a call: it would try the machine that is gone first, and everything
would stand still meanwhile. Here an item whose actor was lost goes to the front of the queue and at once to another,
and an actor that has nothing left takes what somebody else is late with. An item may so be worked on twice; its first
answer counts and a second one is dropped, so that what is done with answers is done by this process, once.
"""

from __future__ import annotations

import contextlib
import logging
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from calibrant.errors import ModelError
from calibrant.remote.ray_session import failed, said

log = logging.getLogger(__name__)

Item = TypeVar("Item")

START_SECONDS = 300.0  # in which one actor must be ready, at the start as after a loss
GET_SECONDS = 30.0  # for an answer that is here already
LOOK_SECONDS = 0.5  # between looks at what is late
LATE = 4.0  # medians of what an item takes
LATE_SECONDS = 2.0  # at least, or a hiccup would look like a frozen machine
KNOWN = 3  # answers from which on there is a median
FATAL = 3  # actors that one item may end

_READY = -1  # the call that says that an actor stands; all others have the number of an item


@dataclass(eq=False)
class _Actor:
    handle: Any
    calls: dict[Any, int] = field(default_factory=dict)  # reference -> item, in the order in which they will be done
    ready: bool = False
    since: float = 0.0  # its last answer, or its being given work when it had none

    def hold(self, reference: Any, item: int) -> None:
        if not self.calls:
            self.since = time.monotonic()
        self.calls[reference] = item


class Pool(Generic[Item]):
    """`start` gives a handle of an actor with the methods `ready()` and `work(item)`, without waiting for it; it must
    have been declared with max_restarts=0 and max_task_retries=0. Of `count` actors those work that find a place.

    `ready` does what takes long or can fail (a constructor's error would look like a machine that was lost), and
    `accept` judges what it gives. `depth`: items at an actor at once, so that it never waits for this process. `ahead`:
    no item is begun so far behind the first that is not done. `steal`: late items may be begun a second time. `name`
    says what an item is and where its first part lies, for the message if it ends every actor that it is given to.
    """

    def __init__(
        self,
        ray: Any,
        start: Callable[[], Any],
        items: Sequence[Item],
        *,
        count: int,
        where: str,
        name: Callable[[Item], tuple[str, str | None]],
        accept: Callable[[Any], None] = lambda found: None,
        depth: int = 2,
        ahead: int | None = None,
        steal: bool = True,
    ) -> None:
        self._ray, self._start, self._items, self._count = ray, start, items, count
        self._where, self._name, self._accept = where, name, accept
        self._depth, self._ahead, self._steal = depth, ahead, steal
        self._waiting = deque(range(len(items)))
        self._actors: list[_Actor] = []
        self._done = [False] * len(items)
        self._first = 0  # that is not done
        self._took: list[float] = []
        self._ended: dict[int, int] = {}  # item -> actors that were lost while they worked on it
        self._fruitless = 0  # actors lost since the last answer
        self._seen = time.monotonic()  # an actor that was ready
        e = ray.exceptions
        actors_own = (e.RayActorError, e.WorkerCrashedError, e.OutOfMemoryError)  # unavailable and dead ones alike
        self._losses = (*actors_own, e.NodeDiedError, e.ActorUnschedulableError)
        self._results_lost = (e.ObjectLostError, e.GetTimeoutError)  # with a machine that had done its work

    def run(self) -> Iterator[tuple[Item, Any]]:
        """Each item with its answer, as they come."""
        try:
            for _ in range(self._count):
                self._add()
            while self._first < len(self._items):
                self._hand_out()
                calls = [reference for actor in self._actors for reference in actor.calls]
                for reference in self._ray.wait(calls, timeout=LOOK_SECONDS)[0]:
                    yield from self._take(reference)
                self._refuse_to_wait_for_ever()
        finally:
            for actor in self._actors:
                self._kill(actor)

    def _add(self) -> None:
        actor = _Actor(self._start())
        actor.hold(actor.handle.ready.remote(), _READY)
        self._actors.append(actor)

    def _hand_out(self) -> None:
        ready = [actor for actor in self._actors if actor.ready]
        # The last ones go where nothing is under way: behind another they would be done later.
        for room in range(self._depth if len(self._waiting) > len(ready) else 1):
            for actor in ready:
                if len(actor.calls) != room or not self._ended.keys().isdisjoint(actor.calls.values()):
                    continue
                item = self._next(alone=room == 0)
                if item is not None:
                    self._give(actor, item)
        if self._steal:
            for actor in ready:  # who has none now will get none
                item = None if actor.calls else self._late()
                if item is not None:
                    log.info("%s is late; begun a second time", self._name(self._items[item])[0])
                    self._give(actor, item)

    def _give(self, actor: _Actor, item: int) -> None:
        actor.hold(actor.handle.work.remote(self._items[item]), item)

    def _next(self, *, alone: bool) -> int | None:
        """`alone`: the actor has nothing else. Only so it gets what an actor was lost at: were it lost again with two
        at once, the answer of the first might be what was lost, and the second what ended it."""
        while self._waiting and self._done[self._waiting[0]]:
            self._waiting.popleft()
        if self._waiting and not alone and self._waiting[0] in self._ended:
            return None
        if not self._waiting or (self._ahead is not None and self._waiting[0] >= self._first + self._ahead):
            return None
        return self._waiting.popleft()

    def _late(self) -> int | None:
        """What has been waited for longest of what all its holders are late with. An actor is late as a whole: it
        does one item after the other, so the second has waited as long for nothing."""
        if len(self._took) < KNOWN:
            return None
        limit = time.monotonic() - max(LATE_SECONDS, LATE * statistics.median(self._took))
        late: dict[int, bool] = {}
        for actor in sorted(self._actors, key=lambda a: a.since):
            for item in (item for item in actor.calls.values() if item != _READY and not self._done[item]):
                late[item] = late.get(item, True) and actor.since < limit
        return next((item for item, all_are in late.items() if all_are), None)

    def _take(self, reference: Any) -> Iterator[tuple[Item, Any]]:
        actor = next(a for a in self._actors if reference in a.calls)
        try:
            found = self._ray.get(reference, timeout=GET_SECONDS)
        except self._losses as error:
            self._lost(actor, error)
            return
        except self._results_lost as error:
            item = actor.calls.pop(reference)
            if item == _READY:
                self._lost(actor, error)
            else:
                self._back([item], error)
            return
        except self._ray.exceptions.RayError as error:  # not a machine's fault: it would happen again
            failed(error, where=self._where, fix="what is done is kept: mend it and start it again")
        item, now = actor.calls.pop(reference), time.monotonic()
        took, actor.since = now - actor.since, now
        if item == _READY:
            self._accept(found)
            actor.ready = True
            return
        self._took.append(took)
        self._fruitless = 0
        if self._done[item]:
            return
        self._done[item] = True
        while self._first < len(self._items) and self._done[self._first]:
            self._first += 1
        yield self._items[item], found

    def _lost(self, actor: _Actor, error: Exception) -> None:
        self._actors.remove(actor)
        self._kill(actor)  # where it was only out of reach it would keep its place
        log.warning("an actor of Ray was lost (%s); its work goes to others", said(error))
        self._fruitless += 1
        if self._fruitless > FATAL * self._count:
            raise ModelError(
                f"{self._fruitless} actors of Ray ended one after the other and nothing was done ({said(error)})",
                where=self._where,
                fix="what is done is kept; ray logs say why, perhaps memory is short",
            )
        self._back([item for item in actor.calls.values() if item != _READY], error)
        self._add()  # stands where there is room for it, and else waits for a new machine

    def _back(self, items: Sequence[int], error: Exception) -> None:
        """To the front. The first of them is what the actor was at when it was lost."""
        held = {item for actor in self._actors for item in actor.calls.values()}
        for item in items[:1]:
            self._ended[item] = self._ended.get(item, 0) + 1
            if self._ended[item] >= FATAL and not self._done[item]:
                what, place = self._name(self._items[item])
                raise ModelError(
                    f"{what} ended {FATAL} actors of Ray in turn ({said(error)})",
                    where=place or self._where,
                    fix="what is done is kept: look at what is in it, and start it again",
                )
        self._waiting.extendleft(item for item in reversed(items) if not self._done[item] and item not in held)

    def _refuse_to_wait_for_ever(self) -> None:
        now = time.monotonic()
        if any(actor.ready for actor in self._actors):
            self._seen = now
        elif now - self._seen > START_SECONDS:
            raise ModelError(
                f"no actor was ready in {START_SECONDS:g} s: are the cluster's cores all taken?",
                where=self._where,
                fix="ray status says what is free",
            )

    def _kill(self, actor: _Actor) -> None:
        with contextlib.suppress(Exception):
            self._ray.kill(actor.handle)
