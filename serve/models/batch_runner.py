"""One batch through a session: requests of the same inputs together, each with its own rows of the answer."""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.serve.engine.session import Arrays, Session
from calibrant.serve.models.job import Job
from calibrant.serve.models.statistics import Counts
from calibrant.serve.protocol.errors import InternalError, Refusal

log = logging.getLogger(__name__)


class BatchRunner:
    """Runs batches; when one fails, its requests are run again one by one, so that only the guilty one fails."""

    def __init__(self, session: Session, counts: Counts, cap: int) -> None:
        self._session, self._counts, self.cap = session, counts, cap

    def run(self, batch: list[Job]) -> None:
        started, input_before = time.monotonic(), self._counts.input_ns
        for job in batch:
            job.started = started
        try:
            self._run_together(batch)
        except Exception as error:
            if len(batch) == 1:
                batch[0].error = self._blame(error)
            else:
                self._rerun(batch, error)
        finished = time.monotonic()
        joining = (self._counts.input_ns - input_before) // len(batch)
        running = int((finished - started) * 1e9) // len(batch) - joining
        for job in batch:
            job.finished, job.input_ns, job.infer_ns = finished, joining, running

    def _rerun(self, batch: list[Job], error: Exception) -> None:
        log.warning(
            "%s: a batch of %d requests failed (%s); running them singly", self._session.path.name, len(batch), error
        )
        for job in batch:
            self._counts.reruns += 1
            try:
                self._run_together([job])
            except Exception as own:
                job.error = self._blame(own)

    def _blame(self, error: Exception) -> Exception:
        if isinstance(error, Refusal):
            return error
        log.error("%s: a request failed: %s", self._session.path.name, error)
        return InternalError(f"the model failed on this input ({type(error).__name__})")

    def _run_together(self, batch: list[Job]) -> None:
        first = batch[0]
        names = first.outputs if len(batch) == 1 else tuple(dict.fromkeys(n for job in batch for n in job.outputs))
        if len(batch) == 1:
            first.result = self._run_one(first, names)
            return
        start = time.perf_counter_ns()
        feeds = {name: np.concatenate([rows_of(job.feeds[name], job.rows) for job in batch]) for name in first.feeds}
        self._counts.input_ns += time.perf_counter_ns() - start
        outputs = self._session.run(feeds, names)
        rows = sum(job.rows for job in batch)
        for name, array in outputs.items():
            if len(array) != rows:
                raise InternalError(f'output "{name}" has {len(array)} rows for {rows}')
        at = 0
        for job in batch:
            job.result = {name: outputs[name][at : at + job.rows] for name in job.outputs}
            at += job.rows

    def _run_one(self, job: Job, names: tuple[str, ...]) -> Arrays:
        if not self._session.batched:
            return self._session.run_rows(job.feeds, names)
        feeds = {name: rows_of(array, job.rows) for name, array in job.feeds.items()}
        step = max(self.cap, 1)
        if job.rows <= max(step, 4):
            return self._session.run(feeds, names)
        # A large request in slices: no more memory than the cap, and no slower than the measured best.
        parts = [
            self._session.run({name: array[at : at + step] for name, array in feeds.items()}, names)
            for at in range(0, job.rows, step)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in names}


def alike(job: Job, other: Job) -> bool:
    """Same inputs, of the same shape but for the rows."""
    if job.feeds.keys() != other.feeds.keys():
        return False
    return all(array.shape[1:] == other.feeds[name].shape[1:] for name, array in job.feeds.items())


def rows_of(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """A knob tensor of one row stands for all rows of its request."""
    return array if len(array) == rows else np.repeat(array, rows, axis=0)
