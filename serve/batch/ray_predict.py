"""`calibrant predict MODEL.onnx --engine ray`: the parts of a run, each by one of several processes of Ray.

Every actor loads the model, lists the images and predicts the parts that it is given with the code of `order`. What
comes back is written here, part by part, so that a run that was interrupted goes on where it was and the rows stand in
the order of the images, whichever actor was first.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from calibrant.errors import DataError, ModelError
from calibrant.remote.ray_session import said, session
from calibrant.serve.batch.order import Order, Part, Span, Workplace
from calibrant.serve.engine.providers import available_cores

log = logging.getLogger(__name__)

CORES = 4  # of one actor where nobody says how many actors
START_SECONDS = 300.0  # for the first actor to be ready


class Actor:
    """One copy of the model and the threads that decode for it."""

    def __init__(self, order: Order, threads: int) -> None:
        self._work = Workplace.of(order, threads=threads)
        self._pool = ThreadPoolExecutor(threads, "decode")

    def fingerprint(self) -> str:
        return self._work.fingerprint

    def predict(self, span: Span) -> Part:
        return self._work.part(span, self._pool)


def predict_spans(
    order: Order, fingerprint: str, spans: Sequence[Span], actors: int | None, *, keep: Callable[[Span, Part], None]
) -> None:
    """Hands each span to an actor that is free and its part to `keep`, in the order in which they are done."""
    if not spans:
        return
    with session("calibrant predict --engine ray", available_cores()) as ray:
        cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
        count = min(actors or -(-cores // CORES), len(spans))
        threads = max(1, cores // count)
        gpus = min(1.0, ray.cluster_resources().get("GPU", 0) / count)
        remote = ray.remote(num_cpus=threads, num_gpus=gpus, max_restarts=3, max_task_retries=3)(Actor)
        handles = [remote.remote(order, threads) for _ in range(count)]
        try:
            _spread(ray, handles, order, fingerprint, deque(spans), keep)
        except ray.exceptions.RayError as error:
            raise ModelError(
                f"an actor of Ray failed ({said(error)})",
                where="--engine ray",
                fix="parts that are done are kept: start it again",
            ) from None
        finally:
            for handle in handles:
                with contextlib.suppress(Exception):
                    ray.kill(handle)


def _spread(
    ray: Any,
    handles: Sequence[Any],
    order: Order,
    fingerprint: str,
    waiting: deque[Span],
    keep: Callable[[Span, Part], None],
) -> None:
    under_way: dict[Any, tuple[Any, Span | None]] = {handle.fingerprint.remote(): (handle, None) for handle in handles}
    joined = False
    while under_way:
        ready, _ = ray.wait(list(under_way), timeout=None if joined else START_SECONDS)
        if not ready:
            raise ModelError(
                f"no actor was ready after {START_SECONDS:g} s: are the cluster's cores all taken?",
                where="--engine ray",
                fix="ray status says what is free",
            )
        handle, span = under_way.pop(ready[0])
        found = ray.get(ready[0])
        if span is not None:
            if found.error is not None:
                raise DataError(found.error.what, where=found.error.where, fix=found.error.fix)
            keep(span, found)
        elif found != fingerprint:
            raise DataError(
                "other files lie here on a machine of the cluster",
                where=order.data,
                fix="give model and images the same content and path on all of them",
            )
        # One more than it works on, so that an actor does not wait for us.
        for _ in range(2 if span is None else 1):
            if waiting:
                following = waiting.popleft()
                under_way[handle.predict.remote(following)] = (handle, following)
        joined = True
