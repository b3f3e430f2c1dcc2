from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from calibrant.errors import ConfigError
from calibrant.train.heads.experiment import run_experiment
from calibrant.train.heads.features.cache import FeatureCache, write_shard
from calibrant.train.heads.matrices import Matrices
from calibrant.train.heads.sweep.jobs import job_key, make_job, open_caches
from calibrant.train.heads.sweep.plan import read_sweep
from calibrant.train.heads.sweep.run import run_sweep

from ..conftest import write_cache

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
    job = make_job(plan, open_caches(plan), "balanced", 1)
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
    keys = {make_job(plan, open_caches(plan), name, seed).key for name in plan.variants for seed in plan.seeds}
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


def two_encoders(tmp_path: Path) -> dict[str, Path]:
    """Caches of the same images, the second with ten times the noise of the first on every feature."""
    wide = write_cache(tmp_path / "wide")
    narrow = write_cache(tmp_path / "narrow")
    described = json.loads((narrow.path / "features.json").read_text())
    described["model"] |= {"name": "another", "sha256": "1" * 64}
    (narrow.path / "features.json").write_text(json.dumps(described))
    for split in narrow.splits():
        for i in range(narrow.shards(split)):
            file = narrow.shard(split, "eval", i)
            rows = pq.read_table(file)
            ids, labels = rows.column("id").to_pylist(), rows.column("label").to_numpy()
            x = np.stack(rows.column("features").to_pylist())
            noise = np.random.default_rng(i).normal(size=x.shape)
            write_shard(file, ids, labels, (x + 3 * noise).astype(np.float32), "float32")
    return {"wide": wide.path, "narrow": narrow.path}


def test_every_head_on_every_encoder_in_one_table(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        'seeds = [0, 1]\nmetric = "weighted_f1_fg"\n[baseline]\ndata.val_per_class = 4\n'
        'data.background = "a"\nhead.kind = "lda"\n[grid]\nhead.shrinkage = [0.2, 0.9]\n'
    )
    plan = read_sweep(file, features=two_encoders(tmp_path), out=tmp_path / "out")
    table = run_sweep(plan, workers=1).table
    assert table is not None
    lines = {line.variant: line for line in table.lines}
    assert set(lines) == {
        "baseline", "narrow: baseline",
        *(f"{e}: head.shrinkage={s}" for e in ("wide", "narrow") for s in (0.2, 0.9)),
    }  # fmt: skip
    best = lines["narrow: baseline"].metrics["weighted_f1_fg"]
    alone = run_experiment(Matrices(FeatureCache.open(tmp_path / "narrow")), plan.config({}, 0))
    other = run_experiment(Matrices(FeatureCache.open(tmp_path / "narrow")), plan.config({}, 1))
    assert alone.test_metrics is not None
    assert other.test_metrics is not None
    assert best.value == (alone.test_metrics["weighted_f1_fg"] + other.test_metrics["weighted_f1_fg"]) / 2
    assert best.high is not None  # noise that strong is told from chance, image by image
    assert best.high < 0
    grid = [line.split() for line in table.text().splitlines()[:5]]
    assert grid[0] == ["test", "weighted_f1_fg", "wide", "narrow"]
    assert grid[2][1:] == [f"{lines[n].metrics['weighted_f1_fg'].value:.4f}" for n in ("baseline", "narrow: baseline")]


def test_caches_of_other_images_are_not_compared(tmp_path: Path) -> None:
    places = two_encoders(tmp_path)
    manifest = json.loads((places["narrow"] / "features.json").read_text())
    manifest["images"]["test"] = "y"  # another digest, and the same rows: other files of the same names
    (places["narrow"] / "features.json").write_text(json.dumps(manifest))
    plan = read_sweep(write(tmp_path, "seeds = [0]\n[grid]\nhead.kind = ['lda']\n"), features=places, out=tmp_path)
    open_caches(plan)
    cache = FeatureCache.open(places["narrow"])
    rows = cache.read("test")
    ids = [f"other/{i}" for i in rows.ids[:50]]
    write_shard(cache.shard("test", "eval", 0), ids, rows.labels[:50], rows.features[:50], "float32")
    with pytest.raises(ConfigError, match="narrow has other images in test than wide"):
        open_caches(plan)


def test_a_variant_may_name_its_encoder(tmp_path: Path) -> None:
    text = """
seeds = [0]
[features]
a = "x"
b = "y"
[[variant]]
name = "only b"
set.encoder = "b"
[[variant]]
name = "both"
set.head.kind = "lda"
"""
    plan = read_sweep(write(tmp_path, text), out=tmp_path)
    on = {name: plan.encoder(overrides) for name, overrides in plan.variants.items()}
    assert on == {"baseline": "a", "b: baseline": "b", "only b": "b", "a: both": "a", "b: both": "b"}
    with pytest.raises(ConfigError, match='no features "c"'):
        read_sweep(write(tmp_path, text.replace('encoder = "b"', 'encoder = "c"')), out=tmp_path)


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    return file


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
