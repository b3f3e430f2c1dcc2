"""Many heads on one cache: a baseline and one change at a time, a grid, or Optuna; several seeds; all cores.

A job is a configuration with its seed. Its key is a hash of the configuration, of what the cache says about itself and
of the version, and its result is one JSON file under that key, written by rename. So a sweep resumes by skipping what
is there, two sweeps on one cache share results, and machines with a shared folder each take `--shard i/n`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal

from calibrant._version import __version__
from calibrant.atomic import write_json
from calibrant.config import build, read_toml, to_table
from calibrant.errors import ConfigError
from calibrant.progress import bar
from calibrant.train.heads.cache import FeatureCache
from calibrant.train.heads.config import HeadConfig, head_config
from calibrant.train.heads.scores import METRICS
from calibrant.train.heads.table import SweepTable, make_table, write_tables

logger = logging.getLogger(__name__)

BASELINE = "baseline"
# Raised by hand when the same configuration gives other numbers than before; old results are then not found again.
# 1 where a kind of head is not named. 2: closed-form heads are adjusted on the scale of their temperature; attention
# pooling pools before it maps values.
RESULTS_VERSION: dict[str, int] = {"lda": 2, "ncm": 2, "map": 2}


@dataclass(frozen=True)
class VariantTable:
    """[[variant]] `set` is laid over the baseline."""

    name: str
    set: dict[str, Any]


@dataclass(frozen=True)
class OptunaTable:
    """[optuna] `space` maps a dotted key to a list of choices, or to {low, high, log, step}."""

    space: dict[str, Any]
    trials: int = 50
    metric: str = "macro_f1"  # on validation, mean over the seeds
    seed: int = 0


@dataclass(frozen=True)
class SweepFile:
    """A sweep's TOML file: exactly one of [[variant]], [grid] and [optuna]."""

    baseline: dict[str, Any] = field(default_factory=dict)
    features: Path | None = None
    out: Path | None = None
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    metric: str = "macro_f1"  # the one that the table sorts and tests by
    variant: tuple[VariantTable, ...] = ()
    grid: dict[str, list[Any]] = field(default_factory=dict)
    optuna: OptunaTable | None = None


@dataclass(frozen=True)
class Plan:
    """A sweep with every configuration checked."""

    features: Path
    out: Path
    seeds: tuple[int, ...]
    metric: str
    variants: dict[str, dict[str, Any]]  # name: overrides over the baseline, by dotted key
    base: dict[str, Any]
    optuna: OptunaTable | None

    def config(self, overrides: Mapping[str, Any], seed: int) -> HeadConfig:
        settings = [f"{key}={_toml(value)}" for key, value in overrides.items()]
        return head_config(self.base, [*settings, f"seed={seed}"], where=self.out.name)


@dataclass(frozen=True)
class Job:
    variant: str
    config: HeadConfig
    key: str


@dataclass(frozen=True)
class Done:
    total: int
    finished: int
    table: SweepTable | None  # None while jobs of other shards are missing


def read_sweep(path: Path, *, features: Path | None = None, out: Path | None = None) -> Plan:
    file = build(SweepFile, read_toml(path), where=path)
    features, out = features or file.features, out or file.out
    if features is None:
        raise ConfigError("no features", where=path, fix='add features = "DIR" or pass --features DIR')
    if out is None:
        raise ConfigError("no place for the results", where=path, fix='add out = "DIR" or pass --out DIR')
    if sum([bool(file.variant), bool(file.grid), file.optuna is not None]) != 1:
        raise ConfigError("needs exactly one of [[variant]], [grid] and [optuna]", where=path)
    for name in (file.metric, file.optuna.metric if file.optuna else file.metric):
        if name not in METRICS:
            raise ConfigError(f'no metric "{name}"', where=path, fix=f"known are: {', '.join(METRICS)}")
    if not file.seeds or len(set(file.seeds)) != len(file.seeds):
        raise ConfigError("seeds must be different numbers, at least one", where=path)
    variants: dict[str, dict[str, Any]] = {BASELINE: {}}
    for v in file.variant:
        if v.name in variants:
            raise ConfigError(f'two variants are called "{v.name}"', where=path)
        variants[v.name] = _flat(v.set)
    if file.grid:
        grid = _flat(file.grid)
        for values in product(*(v if isinstance(v, list) else [v] for v in grid.values())):
            chosen = dict(zip(grid, values, strict=True))
            variants[", ".join(f"{k}={v}" for k, v in chosen.items())] = chosen
    plan = Plan(features, out, file.seeds, file.metric, variants, file.baseline, file.optuna)
    for name, overrides in variants.items():
        try:
            plan.config(overrides, plan.seeds[0])
        except ConfigError as error:
            raise ConfigError(f"{error}", where=f'{path} variant "{name}"') from None
    return plan


def run_sweep(
    plan: Plan, *, workers: int | None = None, shard: str = "1/1", say: Callable[[str], None] = lambda line: None
) -> Done:
    """Run what is missing, write the tables. An interruption waits for the runs in flight and loses nothing."""
    cache = FeatureCache.open(plan.features)
    workers = workers or os.cpu_count() or 1
    (plan.out / "runs").mkdir(parents=True, exist_ok=True)
    mine, shards = _shard(shard)
    if plan.optuna is not None:
        if shards != 1:
            raise ConfigError("Optuna proposes from what is known so far and cannot be sharded", where="--shard")
        plan = _with_trials(plan, cache, workers, say)
    jobs = [make_job(plan, cache, name, seed) for name in plan.variants for seed in plan.seeds]
    part = [job for i, job in enumerate(jobs) if i % shards == mine]
    _run_jobs(plan, part, workers, say)
    results = [(job, read) for job in jobs if (read := _read(plan.out, job.key)) is not None]
    if len(results) < len(jobs):
        return Done(len(jobs), len(results), None)
    rows = [{"variant": job.variant, "seed": job.config.seed, **read} for job, read in results]
    table = make_table(rows, list(plan.variants), baseline=BASELINE, metric=plan.metric, overrides=plan.variants)
    write_tables(plan.out, table, rows)
    return Done(len(jobs), len(jobs), table)


def make_job(plan: Plan, cache: FeatureCache, variant: str, seed: int) -> Job:
    config = plan.config(plan.variants[variant], seed)
    return Job(variant, config, job_key(config, cache))


def job_key(config: HeadConfig, cache: FeatureCache) -> str:
    # Views that were added to the cache later change nothing about the others.
    manifest = {k: v for k, v in cache.manifest.to_dict().items() if k not in ("views", "made_with")}
    version = RESULTS_VERSION.get(config.head.kind, 1)
    # Only what differs from the defaults counts, so that a switch added to Calibrant later keeps the results of before.
    parts = [_changed(to_table(config), to_table(HeadConfig())), manifest, __version__, version]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _changed(table: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that differ from the defaults, tables within tables."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and isinstance(default.get(key), Mapping) and default[key]:
            inner = _changed(value, default[key])
            found |= {key: inner} if inner else {}
        elif value != default.get(key):
            found[key] = value
    return found


def _run_jobs(plan: Plan, jobs: Sequence[Job], workers: int, say: Callable[[str], None]) -> None:
    todo = list({job.key: job for job in jobs if _read(plan.out, job.key) is None}.values())
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


def _seconds_of(plan: Plan, todo: Sequence[Job], workers: int) -> Iterator[float]:
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

    found = _read(Path(out), key)
    if found is not None:  # another sweep on the same folder was faster
        return float(found["seconds"])
    start = time.process_time()
    result = run_experiment(_MATRICES, config)
    seconds = time.process_time() - start
    write_json(
        _result_file(Path(out), key),
        {
            "config": to_table(config), "seconds": seconds, "total_strength": result.total_strength,
            "corrections": result.corrections, "tau": result.posthoc.tau,
            "val": result.val_metrics, "test": result.test_metrics,
        },
    )  # fmt: skip
    return seconds


def _result_file(out: Path, key: str) -> Path:
    return out / "runs" / f"{key}.json"


def _read(out: Path, key: str) -> dict[str, Any] | None:
    try:
        result: dict[str, Any] = json.loads(_result_file(out, key).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        logger.warning("%s is damaged and will be made again", _result_file(out, key))
        return None
    return result


def _with_trials(plan: Plan, cache: FeatureCache, workers: int, say: Callable[[str], None]) -> Plan:
    """The plan with Optuna's trials as variants: it proposes `workers` at a time and is told validation scores."""
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    space = plan.optuna
    assert space is not None  # for the type checker
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    larger: Literal["maximize", "minimize"] = "maximize" if METRICS[space.metric] else "minimize"
    choices = _flat(space.space, leaves=("low", "high"))
    # The name holds what a trial's score depends on, so that a changed space or cache starts a study of its own.
    digest = hashlib.sha256(json.dumps([choices, plan.base, space.metric, plan.seeds,
                                        job_key(plan.config({}, 0), cache)], sort_keys=True).encode())  # fmt: skip
    study = optuna.create_study(
        study_name=digest.hexdigest()[:16], direction=larger, load_if_exists=True,
        sampler=optuna.samplers.TPESampler(seed=space.seed),
        storage=JournalStorage(JournalFileBackend(str(plan.out / "optuna.journal"))),
    )  # fmt: skip
    variants = {BASELINE: plan.variants[BASELINE]}
    for trial in study.trials:
        if trial.state == optuna.trial.TrialState.COMPLETE:
            variants[f"trial {trial.number}"] = dict(trial.params)
    while (left := space.trials - (len(variants) - 1)) > 0:
        asked = [study.ask() for _ in range(min(workers, left))]
        batch = {f"trial {t.number}": {k: _suggest(t, k, v) for k, v in choices.items()} for t in asked}
        step = Plan(plan.features, plan.out, plan.seeds, plan.metric, batch, plan.base, None)
        jobs = [make_job(step, cache, name, seed) for name in batch for seed in plan.seeds]
        _run_jobs(step, jobs, workers, lambda line: None)
        for t, name in zip(asked, batch, strict=True):
            read = [_read(plan.out, job.key) for job in jobs if job.variant == name]
            study.tell(t, sum(r["val"][space.metric] for r in read if r) / len(plan.seeds))
        variants |= batch
        say(f"{len(variants) - 1} of {space.trials} trials; best validation {space.metric} {study.best_value:.4f}")
    return Plan(plan.features, plan.out, plan.seeds, plan.metric, variants, plan.base, None)


def _suggest(trial: Any, key: str, space: Any) -> Any:
    if isinstance(space, list):
        return trial.suggest_categorical(key, space)
    low, high, log, step = space["low"], space["high"], bool(space.get("log", False)), space.get("step")
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(key, low, high, log=log, step=step or 1)
    return trial.suggest_float(key, low, high, log=log, step=step)


def _flat(table: Mapping[str, Any], prefix: str = "", leaves: Sequence[str] = ()) -> dict[str, Any]:
    """Nested tables as dotted keys; a table that has one of `leaves` is a value."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and not any(leaf in value for leaf in leaves):
            flat |= _flat(value, f"{name}.", leaves)
        else:
            flat[name] = value
    return flat


def _toml(value: Any) -> str:
    return json.dumps(value)


def _shard(text: str) -> tuple[int, int]:
    first, slash, second = text.partition("/")
    if not slash or not first.isdigit() or not second.isdigit() or not 1 <= int(first) <= int(second):
        raise ConfigError(f'"{text}" is not I/N', where="--shard", fix="the first of three machines takes 1/3")
    return int(first) - 1, int(second)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
