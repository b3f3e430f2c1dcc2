"""`--engine ray`: the same jobs as tasks of a Ray cluster whose machines share the folder of the results."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calibrant import plugins
from calibrant.errors import CalibrantError, MissingExtra, ModelError
from calibrant.train.jobs.job import Job, read_result
from calibrant.train.jobs.run import Run, work


@contextmanager
def cluster(out: Path) -> Iterator[Run]:
    """What runs jobs on it. A task whose machine goes away is started again elsewhere.

    The cluster is the one that this program has joined, the one that RAY_ADDRESS names, or one on this machine.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtra("--engine ray", "ray", "ray") from None
    joined = ray.is_initialized()
    if not joined:
        cores = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": os.cpu_count() or 1}
        quiet = {"log_to_driver": False, "configure_logging": False, "include_dashboard": False}
        ray.init(logging_level=logging.WARNING, **quiet, **cores)
    try:
        task = ray.remote(num_cpus=1, max_retries=3)(on_one_core)
        yield lambda jobs: _by_tasks(ray, task, jobs, out)
    finally:
        if not joined:
            ray.shutdown()


def _by_tasks(ray: Any, task: Any, jobs: Sequence[Job], out: Path) -> Iterator[tuple[Job, float | None]]:
    place = str(out.resolve())
    waiting = {task.remote(job, place, plugins.sources()): job for job in jobs}
    while waiting:
        ready, _ = ray.wait(list(waiting))
        job = waiting.pop(ready[0])
        seconds = _got(ray, ready[0], out)
        if seconds is not None and read_result(out, job.key) is None:
            raise ModelError(
                "a machine of the cluster wrote its result where this one does not see it",
                where=out,
                fix="give all machines the same folder under the same path",
            )
        yield job, seconds


def on_one_core(job: Job, out: str, asked: Sequence[str] = ()) -> float | None:
    import torch

    torch.set_num_threads(1)
    for source in asked:
        plugins.load(source)
    return work(job, out)


def _got(ray: Any, reference: Any, out: Path) -> float | None:
    try:
        seconds: float | None = ray.get(reference)
        return seconds
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, CalibrantError):
            raise type(cause)(cause.what, where=cause.where, fix=cause.fix) from None
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ModelError(
            f"a task of Ray failed ({lines[-1][:300] if lines else type(error).__name__})",
            where=out,
            fix="finished runs are kept: start it again",
        ) from None
