"""Runs what is missing: in this process, in one process per core with one thread each, or on a Ray cluster.

A result is written by rename under the job's key, so a run that was killed anywhere goes on by skipping what is there.
Who runs a job holds its claim: several commands on one folder share the jobs, and none is run by two at once.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from calibrant import plugins
from calibrant.atomic import write_json
from calibrant.errors import ModelError
from calibrant.progress import bar, spoken
from calibrant.train.jobs.claim import claim
from calibrant.train.jobs.job import Job, read_result, result_file
from calibrant.train.jobs.memory import forget_peak, peak_mb

log = logging.getLogger(__name__)

Engine = Literal["process", "ray"]
# Runs jobs; gives each as it ends, with its CPU seconds, or None where another command on the folder is at it.
Run = Callable[[Sequence[Job]], Iterator[tuple[Job, float | None]]]


def run_jobs(
    jobs: Sequence[Job],
    out: Path,
    *,
    workers: int,
    engine: Engine = "process",
    what: str = "runs",
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Every job of the list has its result afterwards. One worker is this very process."""
    todo = list({job.key: job for job in jobs if read_result(out, job.key) is None}.values())
    workers = max(1, min(workers, len(todo)))
    say(f"{len(jobs)} runs, {len(jobs) - len(todo)} of them finished before; {workers if todo else 0} processes")
    if not todo:
        return
    start = time.monotonic()
    seconds: list[float] = []
    with bar(what=what, total=len(todo), unit="run") as shown, _engine(engine, workers, out) as run:
        left, told = todo, False
        while left:
            held = []
            for job, took in run(left):
                if took is None:
                    held.append(job)
                    continue
                seconds.append(took)
                shown.update(1)
                if len(seconds) == min(len(todo), 2 * workers):
                    to_go = (time.monotonic() - start) / len(seconds) * (len(todo) - len(seconds))
                    say(f"about {spoken(to_go)} to go ({sum(seconds) / len(seconds):.1f} s a run)")
            left = held
            if left and not told:
                log.warning("%s: another command is at %d of these runs; waiting for it", out, len(left))
                told = True
            _until_one_is_free(left, out)
    say(f"{len(todo)} runs in {spoken(time.monotonic() - start)}")


def work(job: Job, out: str) -> float | None:
    """One job: its result under its key, with its CPU seconds and the memory of its process.

    Gives the seconds; None where another process is at it.
    """
    with claim(Path(out), job.key) as mine:
        if not mine:
            return None
        found = read_result(Path(out), job.key)
        if found is not None:  # somebody else on the same folder was faster
            return float(found["seconds"])
        forget_peak()
        start = time.process_time()
        result = job.run(Path(out))
        seconds = time.process_time() - start
        write_json(result_file(Path(out), job.key), {**result, "seconds": seconds, "peak_mb": peak_mb()})
        return seconds


def _until_one_is_free(held: Sequence[Job], out: Path) -> None:
    """Until one of the jobs that others are at has its result, or is given up: its process was killed."""
    while held:
        for job in held:
            with claim(out, job.key) as free:
                if free:
                    return
        time.sleep(0.5)


@contextmanager
def _engine(engine: Engine, workers: int, out: Path) -> Iterator[Run]:
    if engine == "ray":
        from calibrant.train.jobs.ray_cluster import cluster

        with cluster(out) as run:
            yield run
    elif workers == 1:
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield lambda jobs: ((job, work(job, str(out))) for job in jobs)
        finally:
            torch.set_num_threads(threads)
    else:
        with processes(workers, out) as pool:
            yield lambda jobs: _by_processes(pool, jobs, out)


def _by_processes(pool: ProcessPoolExecutor, jobs: Sequence[Job], out: Path) -> Iterator[tuple[Job, float | None]]:
    waiting: dict[Future[float | None], Job] = {pool.submit(work, job, str(out)): job for job in jobs}
    while waiting:
        finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
        for future in finished:
            yield waiting.pop(future), future.result()


@contextmanager
def processes(workers: int, out: Path) -> Iterator[ProcessPoolExecutor]:
    """One process per core with one thread each: two threads on one head are slower than two heads on one each.

    They end with this one, however it ends; `out` is told when one of them was killed.
    """
    import multiprocessing

    before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    os.environ.update(dict.fromkeys(before, "1"))  # read when a child imports its libraries
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start,
        initargs=(os.getpid(), plugins.sources()),
    )
    try:
        yield pool
        pool.shutdown()
    except BrokenProcessPool:
        raise ModelError(
            "a process was killed, perhaps for lack of memory; finished runs are kept",
            where=out,
            fix="start it again, with a smaller --workers if memory was short",
        ) from None
    except BaseException:
        # Ctrl-C reaches the whole group: a head finishes, a training saves its state and stops.
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _start(parent: int, asked: Sequence[str] = ()) -> None:
    import signal
    import threading

    import torch

    torch.set_num_threads(1)
    for source in asked:
        plugins.load(source)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; a training listens itself
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: int) -> None:
    """A child whose parent was killed would wait for work for ever."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
