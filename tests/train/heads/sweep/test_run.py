from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from calibrant.errors import ConfigError
from calibrant.train.heads.experiment import Matrices, run_experiment
from calibrant.train.heads.features.cache import FeatureCache
from calibrant.train.heads.sweep.jobs import job_key, make_job
from calibrant.train.heads.sweep.plan import read_sweep
from calibrant.train.heads.sweep.run import run_sweep

FILE = """
seeds = [0, 1]
[baseline]
data.val_per_class = 4
data.imbalance = 4.0
optimizer.epochs = 3
[[variant]]
name = "balanced"
set.loss.name = "balanced-softmax"
[[variant]]
name = "chosen"
set.posthoc.adjust = "auto"
"""


def plan_of(tmp_path: Path, cache: FeatureCache, text: str = FILE, out: str = "out"):  # type: ignore[no-untyped-def]
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    return read_sweep(file, features=cache.path, out=tmp_path / out)


def test_a_sweep_resumes_and_equals_single_runs(tmp_path: Path, cache: FeatureCache) -> None:
    plan = plan_of(tmp_path, cache)
    said: list[str] = []
    done = run_sweep(plan, workers=1, say=said.append)
    assert (done.total, done.finished) == (6, 6)
    assert any("to go" in line for line in said)
    job = make_job(plan, cache, "balanced", 1)
    file = plan.out / "runs" / f"{job.key}.json"
    alone = run_experiment(Matrices(cache), job.config)
    assert json.loads(file.read_text())["test"] == alone.test_metrics

    stamp = {f.name: f.stat().st_mtime_ns for f in (plan.out / "runs").iterdir()}
    file.unlink()
    (plan.out / "runs" / "half.json").write_text("{")
    again = run_sweep(plan, workers=1, say=said.append)
    assert "6 runs, 5 of them finished before" in said[-3]
    assert again.table is not None
    assert done.table is not None
    assert [li.metrics for li in again.table.lines] == [li.metrics for li in done.table.lines]
    kept = {f.name: f.stat().st_mtime_ns for f in (plan.out / "runs").iterdir() if f.name in stamp}
    assert sum(kept[name] != stamp[name] for name in stamp) == 1

    assert [line.variant for line in done.table.lines][0] == "baseline"
    tidy = pq.read_table(plan.out / "results.parquet").to_pylist()
    assert len(tidy) == 6 * 2 * 14
    assert set(tidy[0]) == {"variant", "seed", "split", "metric", "value"}
    assert "| balanced |" in (plan.out / "table.md").read_text()
    assert (plan.out / "table.html").read_text().startswith("<!doctype html>")


def test_keys_name_what_a_result_depends_on_and_nothing_else(tmp_path: Path, cache: FeatureCache) -> None:
    plan = plan_of(tmp_path, cache)
    keys = {make_job(plan, cache, name, seed).key for name in plan.variants for seed in plan.seeds}
    assert len(keys) == 6
    config = plan.config({}, 0)
    same = plan.config({"loss.label_smoothing": 0.0, "ema.decay": 0.0}, 0)  # defaults, written out
    assert job_key(config, cache) == job_key(same, cache)
    assert job_key(config, cache) != job_key(plan.config({"ema.decay": 0.5}, 0), cache)


def test_shards_divide_the_jobs_and_the_last_one_makes_the_table(tmp_path: Path, cache: FeatureCache) -> None:
    plan = plan_of(tmp_path, cache)
    first = run_sweep(plan, workers=1, shard="1/2")
    assert (first.finished, first.table) == (3, None)
    assert run_sweep(plan, workers=1, shard="2/2").table is not None
    with pytest.raises(ConfigError, match="is not I/N"):
        run_sweep(plan, shard="3/2")


def test_a_grid_has_every_combination(tmp_path: Path, cache: FeatureCache) -> None:
    text = 'seeds = [0]\n[grid]\nhead.kind = ["linear", "cosine"]\noptimizer.lr = [1e-3, 1e-2, 1e-1]\n'
    plan = plan_of(tmp_path, cache, text)
    assert len(plan.variants) == 7
    assert plan.variants["head.kind=cosine, optimizer.lr=0.1"] == {"head.kind": "cosine", "optimizer.lr": 0.1}


def test_a_wrong_variant_is_named_before_anything_runs(tmp_path: Path, cache: FeatureCache) -> None:
    text = '[[variant]]\nname = "odd"\nset.loss.hard_share = 7\n'
    with pytest.raises(ConfigError, match='variant "odd".*hard_share'):
        plan_of(tmp_path, cache, text)
    with pytest.raises(ConfigError, match="two variants"):
        plan_of(tmp_path, cache, '[[variant]]\nname = "a"\nset.seed = 1\n' * 2)


@pytest.mark.slow
def test_processes_give_the_results_of_one_process(tmp_path: Path, cache: FeatureCache) -> None:
    one = run_sweep(plan_of(tmp_path, cache, out="one"), workers=1).table
    two = run_sweep(plan_of(tmp_path, cache, out="two"), workers=2).table
    assert one is not None
    assert two is not None
    assert [li.metrics for li in one.lines] == [li.metrics for li in two.lines]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_optuna_proposes_is_told_validation_scores_and_resumes(tmp_path: Path, cache: FeatureCache) -> None:
    pytest.importorskip("optuna")
    text = """
seeds = [0]
[baseline]
data.val_per_class = 4
optimizer.epochs = 3
[optuna]
trials = TRIALS
[optuna.space]
optimizer.lr = { low = 1e-3, high = 1e-1, log = true }
head.kind = ["linear", "cosine"]
"""
    first = run_sweep(plan_of(tmp_path, cache, text.replace("TRIALS", "3")), workers=1)
    assert first.table is not None
    assert len(first.table.lines) == 4
    more = run_sweep(plan_of(tmp_path, cache, text.replace("TRIALS", "5")), workers=1)
    assert more.table is not None
    assert len(more.table.lines) == 6
    changes = {line.variant: line.changes for line in first.table.lines}
    assert all(changes[line.variant] == line.changes for line in more.table.lines if line.variant in changes)
