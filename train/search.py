"""A search over settings (loss hyperparameters, usually) by the validation metric: a grid, or proposals by Optuna.

A trial is a run like any other, in a folder named by the hash of its configuration, and a job of calibrant.train.jobs.
What is finished is not run again, so a search that stopped goes on, and one with a larger grid reuses the smaller one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant.atomic import write_json
from calibrant.calibration.metrics.table import metric
from calibrant.errors import ConfigError, ModelError
from calibrant.train.config import TrainConfig, train_config
from calibrant.train.jobs.job import read_result
from calibrant.train.jobs.run import Engine, run_jobs
from calibrant.train.jobs.shard import own_part, read_shard
from calibrant.train.jobs.training import TrainJob, train_key

RESULT_FILE = "search.json"


@dataclass(frozen=True)
class Choice:
    """A setting and its values, or its range."""

    key: str
    values: tuple[str, ...] = ()
    low: float = math.nan
    high: float = math.nan
    log: bool = False


@dataclass(frozen=True)
class Trial:
    settings: tuple[str, ...]  # key=value
    run: Path
    value: float  # of the metric that the search selects by, at the run's best epoch
    val: dict[str, float]


def parse_choice(text: str) -> Choice:
    """`loss.lam=0.25,0.5,1` (values) or `loss.beta=0.5:8` and `loss.beta=0.5:8:log` (a range, for Optuna)."""
    key, equals, right = text.partition("=")
    if not equals or not key.strip() or not right.strip():
        raise ConfigError(f'"{text}" is not key=a,b,c or key=low:high[:log]', where="--over")
    if ":" not in right:
        return Choice(key.strip(), tuple(v.strip() for v in right.split(",")))
    low, high, *rest = right.split(":")
    try:
        choice = Choice(key.strip(), low=float(low), high=float(high), log=rest == ["log"])
    except ValueError:
        raise ConfigError(f'"{right}" is not low:high[:log]', where=f"--over {key}") from None
    if not choice.low < choice.high or (choice.log and choice.low <= 0) or rest not in ([], ["log"]):
        raise ConfigError(f'"{right}" is not a range low:high[:log]', where=f"--over {key}")
    return choice


def search(
    table: Mapping[str, Any],
    choices: Sequence[Choice],
    *,
    settings: Sequence[str] = (),
    trials: int | None = None,
    seed: int = 0,
    workers: int = 1,
    shard: str = "1/1",
    engine: Engine = "process",
    on_trial: Callable[[Trial], None] | None = None,
) -> list[Trial]:
    """The trials that are finished, best first; also in <out>/search.json.

    `trials`: let Optuna propose so many, one after the other; None: the whole grid, of which `shard` is this machine's.
    """
    base = train_config(table, settings, where="search")
    select = base.engine.select or "accuracy"
    chosen = f"engine.select={select}"
    done: list[Trial] = []

    def jobs_of(proposals: Sequence[tuple[str, ...]]) -> list[TrainJob]:
        return [_job(train_config(table, [*settings, *proposal, chosen], where="search")) for proposal in proposals]

    def note(job: TrainJob, proposal: tuple[str, ...]) -> None:
        trial = _trial(job, base.out, proposal)
        if trial is not None:
            done.append(trial)
            if on_trial is not None:
                on_trial(trial)

    if trials is not None:
        if read_shard(shard)[1] != 1:
            raise ConfigError("Optuna proposes from what is known so far and cannot be sharded", where="--shard")
        for proposal in _optuna(choices, trials, seed, done, select):
            (job,) = jobs_of([proposal])
            run_jobs([job], base.out, workers=1, engine=engine)
            note(job, proposal)
    else:
        proposals = list(_grid(choices))
        jobs = jobs_of(proposals)
        mine = own_part(jobs, read_shard(shard))
        run_jobs(mine, base.out, workers=workers, engine=engine, what="trials")
        for job, proposal in zip(jobs, proposals, strict=True):
            note(job, proposal)
    lower = metric(select).better == "lower"
    ranked = sorted(done, key=lambda t: t.value if lower else -t.value)
    rows = [
        {
            "settings": list(t.settings),
            "run": t.run.name,
            "value": _json(t.value),
            "val": {name: _json(v) for name, v in t.val.items()},
        }
        for t in ranked
    ]
    block = {"kind": "search", "format_version": 1, "metric": select, "trials": rows}
    write_json(base.out / RESULT_FILE, block)
    return ranked


def _job(config: TrainConfig) -> TrainJob:
    key = train_key(config)
    return TrainJob(config, key[:12], key)


def _trial(job: TrainJob, out: Path, proposal: tuple[str, ...]) -> Trial | None:
    """What a finished job came to; None where another shard has it still to do."""
    result = read_result(out, job.key)
    if result is None:
        return None
    if "failed" in result:
        raise ModelError(result["failed"], where=out / job.folder, fix="leave this setting out")
    # null stands for an infinite NLL
    val = {name: math.inf if value is None else float(value) for name, value in result["val"].items()}
    return Trial(proposal, out / job.folder, val[job.config.engine.select or "accuracy"], val)


def _json(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _grid(choices: Sequence[Choice]) -> Iterator[tuple[str, ...]]:
    for choice in choices:
        if not choice.values:
            raise ConfigError("a range needs --trials; a grid needs values a,b,c", where=f"--over {choice.key}")
    for values in itertools.product(*(c.values for c in choices)):
        yield tuple(f"{c.key}={v}" for c, v in zip(choices, values, strict=True))


def _optuna(
    choices: Sequence[Choice], trials: int, seed: int, done: list[Trial], select: str
) -> Iterator[tuple[str, ...]]:
    """Optuna proposes, we run and tell: its study is rebuilt from our runs, so nothing of it needs keeping."""
    try:
        import optuna
    except ModuleNotFoundError:
        raise ConfigError("needs Optuna", where="--trials", fix="run: pip install optuna, or search a grid") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    direction = "minimize" if metric(select).better == "lower" else "maximize"
    study = optuna.create_study(direction=direction, sampler=optuna.samplers.TPESampler(seed=seed))
    for _ in range(trials):
        asked = study.ask()
        yield tuple(
            f"{c.key}={asked.suggest_categorical(c.key, c.values)}"
            if c.values
            else f"{c.key}={asked.suggest_float(c.key, c.low, c.high, log=c.log)!r}"
            for c in choices
        )
        study.tell(asked, done[-1].value)
