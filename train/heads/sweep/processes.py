"""Jobs on all cores: one process each, with one thread, and the cache read once in each of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant.atomic import write_json
from calibrant.config import to_table
from calibrant.progress import bar
from calibrant.settings.heads import HeadConfig
from calibrant.train.heads.features.cache import FeatureCache
from calibrant.train.heads.sweep.jobs import SweepJob, read_result, result_file
from calibrant.train.heads.sweep.plan import SweepPlan
from calibrant.train.heads.sweep.rows import pack_rows

if TYPE_CHECKING:
    from calibrant.train.heads.experiment import HeadResult


def run_jobs(plan: SweepPlan, jobs: Sequence[SweepJob], workers: int, say: Callable[[str], None]) -> None:
    todo = list({job.key: job for job in jobs if read_result(plan.out, job.key) is None}.values())
    say(f"{len(jobs)} runs, {len(jobs) - len(todo)} of them finished before; {min(workers, len(todo))} processes")
    if not todo:
        return
    start = time.monotonic()
    seconds: list[float] = []
    with bar(what="heads", total=len(todo), unit="run") as shown:
        for took in _seconds_of(plan, todo, workers):
            seconds.append(took)
            shown.update(1)
            if len(seconds) == min(len(todo), 2 * workers):
                left = (time.monotonic() - start) / len(seconds) * (len(todo) - len(seconds))
                say(f"about {_duration(left)} to go ({sum(seconds) / len(seconds):.1f} s a run)")
    say(f"{len(todo)} runs in {_duration(time.monotonic() - start)}")


def _seconds_of(plan: SweepPlan, todo: Sequence[SweepJob], workers: int) -> Iterator[float]:
    """Run the jobs; gives the CPU seconds of each as it ends. One worker is this very process."""
    if workers == 1:
        import torch

        threads = torch.get_num_threads()
        try:
            _load(str(plan.features))
            for job in todo:
                yield _work(job.config, str(plan.out), job.key)
        finally:
            torch.set_num_threads(threads)
        return
    with _pool(plan.features, min(workers, len(todo))) as pool:
        waiting: set[Future[float]] = {pool.submit(_work, job.config, str(plan.out), job.key) for job in todo}
        while waiting:
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                yield future.result()


@contextmanager
def _pool(features: Path, workers: int) -> Iterator[ProcessPoolExecutor]:
    """One process per core with one thread each: two threads on one head are slower than two heads on one each."""
    import multiprocessing

    before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    os.environ.update(dict.fromkeys(before, "1"))  # read when a child imports its libraries
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start, initargs=(str(features),)
    )
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        # Waiting keeps the pool alive until its queue is empty; the runs in flight, seconds each, are finished.
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_MATRICES: Any = None  # of this worker process


def _start(features: str) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    _load(features)


def _load(features: str) -> None:
    global _MATRICES
    import torch

    from calibrant.train.heads.experiment import Matrices

    torch.set_num_threads(1)
    _MATRICES = Matrices(FeatureCache.open(features))


def _work(config: HeadConfig, out: str, key: str) -> float:
    """One job in a worker: train, measure, write the result under its key. Gives its CPU seconds."""
    from calibrant.train.heads.experiment import run_experiment

    found = read_result(Path(out), key)
    if found is not None:  # another sweep on the same folder was faster
        return float(found["seconds"])
    start = time.process_time()
    result = run_experiment(_MATRICES, config)
    seconds = time.process_time() - start
    write_json(
        result_file(Path(out), key),
        {
            "config": to_table(config), "seconds": seconds, "total_strength": result.total_strength,
            "corrections": result.corrections, "tau": result.posthoc.tau,
            "val": result.val_metrics, "test": result.test_metrics, "test_rows": _test_rows(result),
        },
    )  # fmt: skip
    return seconds


def _test_rows(result: HeadResult) -> dict[str, Any] | None:
    if result.test is None or result.test_logits is None:
        return None
    probs = result.posthoc.probabilities(result.test_logits)
    return pack_rows(probs, result.test.labels, result.counts, result.background)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
