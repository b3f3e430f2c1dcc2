"""The data plane: what callers ask of a model, whatever transport brought it. Runs on the event loop's thread.

A transport reads its message into an `InferRequest` or `Pictures` and hands over three functions: `write` makes its
answer of the outcome, `answer` sends that, `refuse` sends a named error instead. Exactly one of the last two is called,
unless the caller is gone.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from calibrant.errors import CalibrantError
from calibrant.serve.engine.knobs import Knobs
from calibrant.serve.engine.pixels import decode
from calibrant.serve.engine.result import Result, answer
from calibrant.serve.engine.session import Arrays
from calibrant.serve.limits import Limits
from calibrant.serve.models.job import Job
from calibrant.serve.models.model import Model
from calibrant.serve.models.repository import Repository
from calibrant.serve.protocol.errors import BadInput, ModelNotFound, Overloaded, QueueFull, Refusal
from calibrant.serve.protocol.json_process import JsonProcess
from calibrant.serve.protocol.pictures import Pictures
from calibrant.serve.protocol.request import InferRequest

if TYPE_CHECKING:
    from calibrant.serve.monitor.monitor import Monitor

LONGEST_ID = 1024
MOST_LARGE = 4  # requests whose JSON is read, or waits to be
T = TypeVar("T")
Refuse = Callable[[Refusal], None]


@dataclass(slots=True)
class Ticket:
    """A request under way: when its last byte came (time.monotonic), and its place in the queue."""

    received: float
    drawn: bool = False  # the caller named no version
    job: Job | None = None
    ran: tuple[float, float, float, int] | None = None  # queued, started, finished, rows; what is left of the job

    def give_up(self) -> None:
        """The caller is gone."""
        if self.job is not None:
            self.job.cancelled = True


class Inference:
    """Admits, checks, queues and answers requests for predictions."""

    def __init__(self, repository: Repository, limits: Limits, *, decoders: int = 1) -> None:
        self.repository, self.limits = repository, limits
        self.loop: asyncio.AbstractEventLoop | None = None
        self._threads = decoders
        self._pool = ThreadPoolExecutor(decoders, "decode")
        self.large = JsonProcess()
        self._decoding = 0
        self._serial = itertools.count()
        self._prefix = f"{time.time_ns():x}{os.getpid():x}"
        self._dice = random.Random()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.large.close()

    # ---- the loop

    def deliver(self, jobs: list[Job]) -> None:
        """From the batcher's thread: one wake-up of the loop for a whole batch."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(_call_back, jobs)

    def soon(self, callback: Callable[[], None]) -> None:
        """From the loop's thread: after the requests that it is reading now."""
        if self.loop is not None:
            self.loop.call_soon(callback)

    def in_thread(
        self,
        model: Model | None,
        work: Callable[[], T],
        then: Callable[[T], None],
        failed: Callable[[Exception], None],
        *,
        pool: ThreadPoolExecutor | None = None,
        over: Callable[[], None] = lambda: None,
    ) -> None:
        """`then` gets what `work` made of a request away from the loop, which has other callers. The model, where it is
        known already, is not retired meanwhile. `pool`: other threads than those that decode pictures. `over` is called
        before either of the two."""
        if model is not None:
            model.active += 1

        def finished(future: asyncio.Future[tuple[T | None, Exception | None]]) -> None:
            if model is not None:
                model.active -= 1
            over()
            found, wrong = future.result()
            if wrong is None:
                try:
                    then(cast(T, found))
                except Exception as error:
                    wrong = error
            if wrong is not None:
                failed(wrong)
                _forget_frames(wrong)

        asyncio.get_running_loop().run_in_executor(pool or self._pool, _outcome, work).add_done_callback(finished)

    def read_large(
        self,
        model: Model,
        body: memoryview,
        length: int | None,
        then: Callable[[InferRequest], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Reads JSON that would keep other callers waiting, in a process of its own."""
        large = self.large
        if large.waiting >= MOST_LARGE:
            raise Overloaded("too many requests of large JSON at once; send binary tensors", retry_after=1)
        large.waiting += 1

        def left() -> None:
            large.waiting -= 1

        self.in_thread(model, lambda: large.read(body, length, model.target), then, failed, pool=large.pool, over=left)

    # ---- who answers

    def admit(self, name: str | None, version: str | None) -> Model:
        """The model that answers. Refuses at once what would wait too long: a caller can go elsewhere now, not in five
        seconds."""
        model = self._choose(self._only_model() if name is None else name, version)
        model.used = time.monotonic()
        wait = model.batcher.predicted_wait
        if wait > self.limits.max_wait:
            model.statistics.turned_away += 1
            raise QueueFull(f"the queue is full: about {wait:.1f} s of work is ahead", retry_after=wait / 2)
        return model

    def _choose(self, name: str, version: str | None) -> Model:
        canary = self.repository.canaries.get(name) if version is None else None
        if canary is not None and self._dice.random() < canary.share and self.repository.has(name, canary.version):
            return self.repository.get(name, canary.version)
        return self.repository.get(name, version)

    def _only_model(self) -> str:
        if self.repository.starting:  # which is the only one shows when all are there
            raise self.repository.still_loading()
        models = sorted({*self.repository.models, *(name for name, _ in self.repository.away)})
        if not models:
            raise ModelNotFound("no model is loaded")
        if len(models) != 1:
            raise BadInput(f"there are {len(models)} models; choose one with ?model=NAME: {', '.join(models)}")
        return models[0]

    def failed(self, model: Model, ticket: Ticket, error: Exception) -> Refusal:
        """Counts a request that gets no answer; the name of what went wrong."""
        model.failed(ticket.received)
        refusal = Refusal.of(error)
        if model.trial is not None and ticket.drawn and refusal.status >= 500:
            model.trial.failed += 1
        return refusal

    # ---- tensors

    def infer(
        self,
        model: Model,
        request: InferRequest,
        ticket: Ticket,
        *,
        write: Callable[[Arrays], T],
        answer: Callable[[T], None],
        refuse: Refuse,
    ) -> None:
        def finish(job: Job) -> None:
            answer(write(model.finish(request, job.result or {})))

        try:
            if model.monitor is not None:
                self._identify(request)
            self._submit(model, request, ticket, finish, refuse)
        except Exception as error:
            refuse(self.failed(model, ticket, error))

    def _identify(self, request: InferRequest) -> None:
        """An id of our own where the caller gave none and a label may come later."""
        if not request.id:
            request.id = self._new_id()
        elif len(request.id) > LONGEST_ID:
            raise BadInput(
                f"`id` has {len(request.id)} characters; at most {LONGEST_ID} are kept with each row of a request"
            )

    def _new_id(self) -> str:
        return f"{self._prefix}-{next(self._serial)}"

    def _submit(
        self, model: Model, request: InferRequest, ticket: Ticket, finish: Callable[[Job], None], refuse: Refuse
    ) -> None:
        """Queues the request; `finish` is called with its job, and what it raises is the answer instead."""
        model.check(request)

        def done(job: Job) -> None:
            model.active -= 1
            ticket.ran = (job.queued, job.started, job.finished, job.rows)
            ticket.job = None  # they hold each other, and their tensors would wait for the garbage collector
            try:
                if job.cancelled:
                    model.statistics.cancelled += 1
                    return
                if job.error is not None:
                    raise job.error
                start = time.perf_counter_ns()
                finish(job)
                seconds = model.succeeded(ticket.received, job, time.perf_counter_ns() - start)
                if model.trial is not None and ticket.drawn:
                    model.trial.took(seconds)
                if model.monitor is not None:
                    self._watch(model.monitor, request, job)
            except Exception as error:
                refuse(self.failed(model, ticket, error))

        seconds = self.limits.request_seconds
        if request.timeout is not None:
            seconds = min(seconds, request.timeout)
        job = Job(request.feeds, request.rows, model.needed_outputs(request), done, ticket.received + seconds)
        ticket.job = job
        model.active += 1
        try:
            model.batcher.put(job)
        except Refusal:
            model.active -= 1
            raise
        if self.repository.shadows:
            self._shadow(model, request, job)

    # ---- pictures

    def predict(
        self,
        model: Model,
        asked: Pictures,
        ticket: Ticket,
        *,
        write: Callable[[Result, str | None], T],
        answer: Callable[[T], None],
        refuse: Refuse,
    ) -> None:
        """`write` also gets the id of the request. Raises what can be said before anything is under way."""
        if asked.id is not None and len(asked.id) > LONGEST_ID:
            raise BadInput(f"`id` has {len(asked.id)} characters; at most {LONGEST_ID} are kept")
        card = model.session.require_card()
        if self._decoding >= 64 * self._threads:
            raise Overloaded("too many pictures are waiting to be decoded", retry_after=1)
        request_id = self._new_id() if model.monitor is not None and asked.id is None else asked.id
        self._decoding += 1

        def finish(job: Job) -> None:
            answer(write(_result(model, asked.knobs, job.result or {}), request_id))

        def over() -> None:
            self._decoding -= 1

        def decoded(images: Any) -> None:
            request = InferRequest(model.classifier.feeds(images), len(images), [], request_id, asked.knobs)
            request.pictures = True
            self._submit(model, request, ticket, finish, refuse)

        def failed(error: Exception) -> None:
            refuse(self.failed(model, ticket, error))

        limit = self.limits.max_pixels
        self.in_thread(model, lambda: decode(card, asked.images, max_pixels=limit), decoded, failed, over=over)

    # ---- who looks on

    def _watch(self, monitor: Monitor, request: InferRequest, job: Job) -> None:
        """Hands the answer to the model's monitor."""
        if request.id is not None and job.result is not None and "logits" in job.result:
            if monitor.config.sample < 1.0 and self._dice.random() >= monitor.config.sample:
                return
            features = None if monitor.features is None else job.result.get("features")
            monitor.record(request.id, job.result["logits"], job.finished - job.queued, features)

    def _shadow(self, model: Model, request: InferRequest, job: Job) -> None:
        """A copy of the request for a version that answers nobody, when it has nothing else to do."""
        for version, share in self.repository.shadows.get(model.name, ()):
            shadow = self.repository.models.get(model.name, {}).get(version)
            if shadow is None or shadow is model or self._dice.random() >= share:
                continue
            if shadow.target.inputs != model.target.inputs or shadow.batcher.predicted_wait > 0.1:
                shadow.statistics.turned_away += 1
                continue
            self._copy(shadow, request, job)

    def _copy(self, shadow: Model, request: InferRequest, job: Job) -> None:
        def done(copy: Job) -> None:
            shadow.active -= 1
            if copy.result is not None:
                shadow.statistics.shadowed += 1
                if shadow.monitor is not None:
                    self._watch(shadow.monitor, request, copy)

        shadow.active += 1
        shadow.batcher.put(Job(request.feeds, request.rows, shadow.needed_outputs(request), done, job.deadline))


def _result(model: Model, knobs: Knobs | None, outputs: Arrays) -> Result:
    return answer(model.session.require_card(), model.classifier.formula, outputs, knobs or Knobs())


def _call_back(jobs: list[Job]) -> None:
    for job in jobs:
        job.done(job)


def _outcome(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """What came of it, or what went wrong. What a refusal's frames hold is given back by this thread: a body of 60 MB
    took the loop 40 ms."""
    try:
        return work(), None
    except (Refusal, CalibrantError) as refusal:  # the message says all
        _forget_frames(refusal)
        return None, refusal
    except Exception as error:
        return None, error


def _forget_frames(error: BaseException) -> None:
    """Of it and of what it was raised from: they hold the body, and often each other, so that tens of bodies of 60 MB
    waited for the garbage collector."""
    found: BaseException | None = error
    while found is not None:
        found.__traceback__, found.__cause__ = None, None
        found.__context__, found = None, found.__context__
