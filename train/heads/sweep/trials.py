"""Optuna's trials as variants of a sweep: it proposes a batch at a time and is told validation scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from calibrant.train.heads.features.cache import FeatureCache
from calibrant.train.heads.scores import METRICS
from calibrant.train.heads.sweep.jobs import job_key, make_job
from calibrant.train.heads.sweep.plan import BASELINE, SweepPlan, flatten
from calibrant.train.jobs.job import read_result
from calibrant.train.jobs.run import run_jobs


def with_trials(
    plan: SweepPlan, caches: Mapping[str, FeatureCache], workers: int, say: Callable[[str], None]
) -> SweepPlan:
    """The plan with Optuna's trials as variants: it proposes `workers` at a time and is told validation scores."""
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    space = plan.optuna
    assert space is not None  # for the type checker
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    larger: Literal["maximize", "minimize"] = "maximize" if METRICS[space.metric] else "minimize"
    choices = flatten(space.space, leaves=("low", "high"))
    # The name holds what a trial's score depends on, so that a changed space or cache starts a study of its own.
    keys = [job_key(plan.config({}, 0), cache) for cache in caches.values()]
    depends = [choices, plan.base, space.metric, plan.seeds, keys[0] if len(keys) == 1 else keys]
    digest = hashlib.sha256(json.dumps(depends, sort_keys=True).encode())
    study = optuna.create_study(
        study_name=digest.hexdigest()[:16],
        direction=larger,
        load_if_exists=True,
        sampler=optuna.samplers.TPESampler(seed=space.seed),
        storage=JournalStorage(JournalFileBackend(str(plan.out / "optuna.journal"))),
    )
    variants = {BASELINE: plan.variants[BASELINE]}
    for trial in study.trials:
        if trial.state == optuna.trial.TrialState.COMPLETE:
            variants[f"trial {trial.number}"] = dict(trial.params)
    while (left := space.trials - (len(variants) - 1)) > 0:
        asked = [study.ask() for _ in range(min(workers, left))]
        batch = {f"trial {t.number}": {k: _suggest(t, k, v) for k, v in choices.items()} for t in asked}
        step = replace(plan, variants=batch, optuna=None)
        jobs = [make_job(step, caches, name, seed) for name in batch for seed in plan.seeds]
        run_jobs(jobs, plan.out, workers=workers, what="heads")
        for t, name in zip(asked, batch, strict=True):
            read = [read_result(plan.out, job.key) for job in jobs if job.variant == name]
            study.tell(t, sum(r["val"][space.metric] for r in read if r) / len(plan.seeds))
        variants |= batch
        say(f"{len(variants) - 1} of {space.trials} trials; best validation {space.metric} {study.best_value:.4f}")
    return replace(plan, variants=variants, optuna=None)


def _suggest(trial: Any, key: str, space: Any) -> Any:
    if isinstance(space, list):
        return trial.suggest_categorical(key, space)
    low, high, log, step = space["low"], space["high"], bool(space.get("log", False)), space.get("step")
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(key, low, high, log=log, step=step or 1)
    return trial.suggest_float(key, low, high, log=log, step=step)
