"""`--engine ray`: the same jobs by actors of a Ray cluster whose machines share the folder of the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from calibrant import plugins
from calibrant.errors import ModelError
from calibrant.remote.ray_pool import Pool
from calibrant.remote.ray_session import Cluster, session
from calibrant.train.jobs.job import Job, read_result
from calibrant.train.jobs.run import Run, work


class Actor:
    """A process of one core."""

    def __init__(self, out: str, asked: Sequence[str]) -> None:
        self._out, self._asked = out, asked

    def ready(self) -> None:
        import torch

        torch.set_num_threads(1)
        for source in self._asked:
            plugins.load(source)

    def work(self, job: Job) -> float | None:
        return work(job, self._out)


@contextmanager
def cluster(out: Path) -> Iterator[Run]:
    """What runs jobs on it. A job whose machine goes away starts again elsewhere, at its checkpoint if it has one."""
    with session("--engine ray") as found:
        yield lambda jobs: _by_actors(found, jobs, out)


def _by_actors(found: Cluster, jobs: Sequence[Job], out: Path) -> Iterator[tuple[Job, float | None]]:
    place = str(out.resolve())
    remote = found.ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Actor)
    pool = Pool(
        found.ray,
        lambda: remote.remote(place, plugins.sources()),
        jobs,
        count=min(len(jobs), max(1, int(found.resource("CPU")))),
        where=str(out),
        name=lambda job: (f"the run {job.key}", None),
        depth=1,  # a job takes seconds or hours: none waits behind another while somebody is idle
        steal=False,  # of jobs that differ so much none is late, and its claim would keep a second one from it
    )
    for job, seconds in pool.run():
        if seconds is not None and read_result(out, job.key) is None:
            raise ModelError(
                "a machine of the cluster wrote its result where this one does not see it",
                where=out,
                fix="give all machines the same folder under the same path",
            )
        yield job, seconds
