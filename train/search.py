"""A search over settings (loss hyperparameters, usually) by the validation metric: a grid, or proposals by Optuna.

A trial is a run like any other, in a folder named by the hash of its configuration. What is finished is not run again,
so a search that stopped goes on, and one with a larger grid reuses the smaller one.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calibrant.atomic import write_json
from calibrant.calibration.metrics.table import metric
from calibrant.config import to_table
from calibrant.errors import ConfigError
from calibrant.train.config import TrainConfig, train_config
from calibrant.train.engine import fit
from calibrant.train.run.folder import CHECKPOINT_FILE
from calibrant.train.run.history import read_history

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
    on_trial: Callable[[Trial], None] | None = None,
) -> list[Trial]:
    """All trials, best first; also in <out>/search.json. `trials`: let Optuna propose so many; None: the grid."""
    base = train_config(table, settings, where="search")
    done: list[Trial] = []
    proposals = _grid(choices) if trials is None else _optuna(choices, trials, seed, done, base.engine.select)
    for proposal in proposals:
        config = train_config(table, [*settings, *proposal], where="search")
        done.append(_run(config, base.out, proposal))
        if on_trial is not None:
            on_trial(done[-1])
    lower = metric(base.engine.select).better == "lower"
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
    block = {"kind": "search", "format_version": 1, "metric": base.engine.select, "trials": rows}
    write_json(base.out / RESULT_FILE, block)
    return ranked


def _run(config: TrainConfig, out: Path, proposal: tuple[str, ...]) -> Trial:
    described = {k: v for k, v in to_table(config).items() if k != "out"}
    key = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:12]
    run = out / key
    if not (run / "predictions" / "val.parquet").is_file():  # the last thing that a run writes
        fit(replace(config, out=run), resume=(run / CHECKPOINT_FILE).is_file())
    best = next(line for line in reversed(read_history(run)) if line["best"])
    # null stands for an infinite NLL
    val = {name: math.inf if value is None else float(value) for name, value in best["val"].items()}
    return Trial(proposal, run, val[config.engine.select], val)


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
