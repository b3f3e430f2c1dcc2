"""`calibrant sweep`: run what is missing of a plan, then compare."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from calibrant.errors import ConfigError
from calibrant.train.heads.sweep.jobs import make_job, open_caches
from calibrant.train.heads.sweep.plan import BASELINE, SweepPlan
from calibrant.train.heads.sweep.table import SweepTable, make_table, write_tables
from calibrant.train.heads.sweep.trials import with_trials
from calibrant.train.jobs.job import read_result
from calibrant.train.jobs.run import Engine, run_jobs
from calibrant.train.jobs.shard import own_part, read_shard


@dataclass(frozen=True)
class SweepOutcome:
    total: int
    finished: int
    table: SweepTable | None  # None while jobs of other shards are missing


def run_sweep(
    plan: SweepPlan,
    *,
    workers: int | None = None,
    shard: str = "1/1",
    engine: Engine = "process",
    say: Callable[[str], None] = lambda line: None,
) -> SweepOutcome:
    """Run what is missing, write the tables. An interruption waits for the runs in flight and loses nothing."""
    caches = open_caches(plan)
    workers = workers or os.cpu_count() or 1
    (plan.out / "runs").mkdir(parents=True, exist_ok=True)
    part = read_shard(shard)
    if plan.optuna is not None:
        if part[1] != 1:
            raise ConfigError("Optuna proposes from what is known so far and cannot be sharded", where="--shard")
        plan = with_trials(plan, caches, workers, say)
    jobs = [make_job(plan, caches, name, seed) for name in plan.variants for seed in plan.seeds]
    # A process keeps one cache in memory.
    ordered = sorted(own_part(jobs, part), key=lambda job: str(job.features))
    run_jobs(ordered, plan.out, workers=workers, engine=engine, what="heads", say=say)
    results = [(job, read) for job in jobs if (read := read_result(plan.out, job.key)) is not None]
    if len(results) < len(jobs):
        return SweepOutcome(len(jobs), len(results), None)
    rows = [{"variant": job.variant, "seed": job.config.seed, **read} for job, read in results]
    table = make_table(
        rows, list(plan.variants), baseline=BASELINE, metric=plan.metric, overrides=plan.variants, rank_by=plan.rank_by
    )
    write_tables(plan.out, table, rows)
    return SweepOutcome(len(jobs), len(jobs), table)
