"""Micro-batching without waiting: whatever has queued up runs together the moment the session is free.

A thread of its own runs the batches. A process with one core has nothing from that but changes of threads, so there
short batches run on the event loop's thread, between two rounds of reading requests. A request is never split over
batches of others, a request larger than the cap runs alone in slices of the cap, and when a batch fails its requests
are run again one by one, so that only the guilty one fails. Requests that were cancelled or whose deadline passed while
they waited are dropped when a batch is formed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from calibrant.serve.engine.batch_curve import BatchCurve
from calibrant.serve.engine.session import Arrays, Session
from calibrant.serve.models.batch_runner import BatchRunner, alike
from calibrant.serve.models.cap_search import CapSearch
from calibrant.serve.models.job import Job
from calibrant.serve.models.statistics import Counts
from calibrant.serve.protocol.errors import DeadlinePassed, NotReady

log = logging.getLogger(__name__)

HOLD_SECONDS, HOLD_SHARE = 0.003, 0.05  # of the time that the next request has queued
TURN_SECONDS = 0.02  # what a batch may take of the event loop's time


class Batcher:
    """`put` jobs from one thread; `deliver` is called from the worker with each list of finished jobs.

    `soon` calls back on the thread that puts, when that has read what there is: given where batches shall run there.
    Their jobs are handed back at once, without `deliver`.
    """

    def __init__(
        self,
        session: Session,
        *,
        cap: int | None = None,
        deliver: Callable[[list[Job]], None] | None = None,
        soon: Callable[[Callable[[], None]], None] | None = None,
        better: Callable[[BatchCurve], None] = lambda curve: None,
    ) -> None:
        """`cap`: rows of a run at most; without it the session's own, and larger ones are tried where the start had no
        time to. `better` is told what was found."""
        self.session = session
        self._search = CapSearch(session.curve, better) if cap is None and session.batched else None
        self.cap = cap if cap is not None else session.cap
        self.counts = Counts()
        self._runner = BatchRunner(session, self.counts, self.cap)
        self.batch_sizes: dict[int, list[int]] = {}  # rows: [runs, nanoseconds]
        self._deliver = deliver or _call_back
        self._soon = soon
        self._in_turn = False  # a batch runs on the thread that puts
        self._waiting: deque[Job] = deque()
        self._waiting_rows = 0
        self._running_rows = 0
        self._running_since = 0.0
        self._row_seconds = session.seconds_per_row
        self._lock = threading.Condition(threading.Lock())
        self._open = True
        self._worker = threading.Thread(target=self._work, name=f"batcher-{session.path.stem}", daemon=True)
        self._worker.start()

    def put(self, job: Job) -> None:
        job.queued = time.monotonic()
        with self._lock:
            if not self._open:
                raise NotReady("the model is being unloaded", retry_after=1)
            self._waiting.append(job)
            self._waiting_rows += job.rows
            if len(self._waiting) == 1 and not self._running_rows:
                self._start()

    def _start(self) -> None:
        """Sees to it that what waits is run; called with the lock held."""
        if self._soon is not None and self._is_short(self._waiting[0]):
            self._soon(self._turn)
        else:
            self._lock.notify()

    def _is_short(self, job: Job) -> bool:
        return job.rows <= self.cap and self.cap * self._row_seconds <= TURN_SECONDS

    def _turn(self) -> None:
        """One batch on the thread that puts; the worker has the others."""
        with self._lock:
            if self._running_rows or not self._waiting:
                return
            if not self._is_short(self._waiting[0]):
                self._lock.notify()
                return
            batch, dropped = self._take()
            self._in_turn = True
        try:
            self.counts.dropped += len(dropped)
            if batch:
                self._runner.run(batch)
            _call_back(dropped + batch)
            if batch:
                self._count(batch)  # only now: the callers have waited long enough
        finally:
            with self._lock:
                self._in_turn, self._running_rows = False, 0
                if not self._open:
                    self._lock.notify()
                elif self._waiting:
                    self._start()

    def run(self, feeds: Arrays, rows: int, outputs: Sequence[str], *, timeout: float | None = None) -> Arrays:
        """Waits for the answer; for callers that have threads and no event loop."""
        future: Future[Arrays] = Future()

        def done(job: Job) -> None:
            if job.error is not None:
                future.set_exception(job.error)
            else:
                future.set_result(job.result or {})

        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        self.put(Job(feeds, rows, tuple(outputs), done, deadline))
        return future.result()

    @property
    def predicted_wait(self) -> float:
        """Seconds until a request that comes now would start, from the rows ahead of it and the measured pace."""
        if not self._running_rows and not self._waiting_rows:
            return 0.0
        elapsed = time.monotonic() - self._running_since if self._running_rows else 0.0
        ahead = (self._waiting_rows + self._running_rows) * self._row_seconds
        return max(0.0, ahead - min(elapsed, self._running_rows * self._row_seconds))

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._running_rows

    @property
    def alive(self) -> bool:
        return self._worker.is_alive()

    def close(self, *, timeout: float | None = None) -> None:
        """Finishes what waits and ends the thread."""
        with self._lock:
            self._open = False
            self._lock.notify()
        if threading.current_thread() is not self._worker:
            self._worker.join(timeout)

    def _work(self) -> None:
        ready: list[Job] = []  # answers that have not been handed over yet
        since = 0.0
        while True:
            with self._lock:
                if not self._in_turn:
                    self._running_rows = 0
                hold = bool(ready) and bool(self._waiting) and self._may_hold(since)
                if not ready:
                    while self._in_turn or (not self._waiting and self._open):
                        self._lock.wait()
                    if not self._waiting:
                        return
                batch, dropped = self._take() if hold or not ready else ([], [])
            if ready and not hold:
                self._deliver(ready)
                ready = []
                continue
            if not ready:
                since = time.monotonic()
            if dropped:
                self.counts.dropped += len(dropped)
                ready += dropped
            if batch:
                self._runner.run(batch)
                self._count(batch)
                ready += batch

    def _may_hold(self, since: float) -> bool:
        """Whether the next batch may run before the answers of the last ones are handed over.

        Every hand-over costs a system call and a change of threads. Where requests queue for much longer than a run
        takes, answers may wait for a twentieth of that time, and one hand-over serves several runs; a request that did
        not have to queue is never held.
        """
        now = time.monotonic()
        return now - since < min(HOLD_SECONDS, HOLD_SHARE * (now - self._waiting[0].queued))

    def _take(self) -> tuple[list[Job], list[Job]]:
        """What runs next: jobs from the front, of the same inputs, up to the cap in rows."""
        now = time.monotonic()
        most = self.cap if self._search is None else self._search.goal(self._waiting_rows, self._row_seconds)
        batch: list[Job] = []
        dropped: list[Job] = []
        rows = 0
        while self._waiting:
            job = self._waiting[0]
            if job.cancelled or job.deadline < now:
                self._waiting_rows -= job.rows
                dropped.append(self._waiting.popleft())
                if not job.cancelled:
                    job.error = DeadlinePassed(f"the deadline passed after {now - job.queued:.3f} s in the queue")
                continue
            if batch and (not self.session.batched or rows + job.rows > most or not alike(job, batch[0])):
                break
            batch.append(self._waiting.popleft())
            self._waiting_rows -= job.rows
            rows += job.rows
        self._running_rows, self._running_since = rows, now
        return batch, dropped

    def _count(self, batch: list[Job]) -> None:
        started, finished = batch[0].started, batch[0].finished
        self.counts.queue_ns += int(sum(started - job.queued for job in batch) * 1e9)
        rows = sum(job.rows for job in batch)
        # A slowly moving average follows a machine that gets busier or hotter; failed batches count as time too.
        self._row_seconds += 0.1 * ((finished - started) / rows - self._row_seconds)
        self.counts.executions += 1
        self.counts.rows += rows
        self.counts.compute_ns += int((finished - started) * 1e9)
        if self._search is not None and not self._search.over and all(job.error is None for job in batch):
            self._search.ran(rows, finished - started)
            self.cap = self._runner.cap = self._search.cap
        size = self.batch_sizes.setdefault(rows, [0, 0])
        size[0] += 1
        size[1] += int((finished - started) * 1e9)


def _call_back(jobs: list[Job]) -> None:
    for job in jobs:
        job.done(job)
