"""A study of heads: its data are feature caches, or images of which one is made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.errors import ConfigError
from calibrant.train.heads.experiment import run_experiment
from calibrant.train.heads.matrices import Matrices
from calibrant.train.jobs.job import read_result
from calibrant.train.study.file import read_study
from calibrant.train.study.heads import HeadRuns
from calibrant.train.study.plan import Cell, plan_study
from calibrant.train.study.run import join_study, run_study
from tests.train.heads.conftest import write_cache

TABLE = """
title = "heads"
kind = "heads"
reference = "ce"
metrics = ["macro_f1", "tail_accuracy", "nll"]
posthoc = []
seeds = 2
[base]
data.val_per_class = 4
data.imbalance = 4.0
optimizer.epochs = 3
[[data]]
name = "toy"
[[method]]
name = "ce"
[[method]]
name = "balanced"
set.loss.name = "balanced-softmax"
[[method]]
name = "ce again"
set.loss.label_smoothing = 0.0
[scale.tiny]
set.optimizer.epochs = 2
"""


def test_rows_of_a_study_are_those_of_single_heads(tmp_path: Path) -> None:
    cache = write_cache(tmp_path / "feats")
    (tmp_path / "heads.toml").write_text(TABLE)
    plan = plan_study(
        read_study(tmp_path / "heads.toml"), scale="tiny", out=tmp_path / "out", places={"toy": cache.path}
    )
    assert run_study(plan).missing == ()
    joined = join_study(plan)
    (block,) = joined.blocks
    lines = {line.method: line for line in block.lines}
    alone = [
        run_experiment(Matrices(cache), job.config).test_metrics
        for seed in plan.seeds
        if (job := HeadRuns(plan).job(Cell("toy", "default", "balanced", seed))) is not None
    ]
    assert lines["balanced"].estimates["macro_f1"].mean == np.mean([m["macro_f1"] for m in alone if m])
    assert lines["balanced"].estimates["tail_accuracy"].noise == "seeds and images"
    assert lines["ce again"].estimates["nll"].difference == 0.0
    first = HeadRuns(plan).job(Cell("toy", "default", "ce", 1))
    assert first is not None
    assert first.config.optimizer.epochs == 2


def test_a_control_takes_the_number_that_a_head_of_the_same_seed_measured(tmp_path: Path) -> None:
    cache = write_cache(tmp_path / "feats")
    more = """
[[method]]
name = "fedlas-ls"
set.loss.name = "fedlas-ls"
[[method]]
name = "ls, its alpha"
set.loss.name = "ls"
measured = { "loss.alpha" = "fedlas-ls mean_alpha" }
[scale.tiny]"""
    (tmp_path / "heads.toml").write_text(TABLE.replace("[scale.tiny]", more))
    plan = plan_study(
        read_study(tmp_path / "heads.toml"), scale="tiny", out=tmp_path / "out", places={"toy": cache.path}
    )
    cell = Cell("toy", "default", "ls, its alpha", 2)
    assert HeadRuns(plan).job(cell) is None
    assert run_study(plan).missing == ()
    job, other = HeadRuns(plan).job(cell), HeadRuns(plan).job(Cell("toy", "default", "fedlas-ls", 2))
    assert job is not None
    assert other is not None
    result = read_result(plan.out, other.key)
    assert result is not None
    alpha = result["measured"]["mean_alpha"]
    assert 0 < alpha < 0.1
    assert job.config.loss.options == {"alpha": pytest.approx(alpha, rel=1e-5)}
    lines = {line.method: line for line in join_study(plan).blocks[0].lines}
    assert lines["fedlas-ls"].measured["mean_alpha"] == pytest.approx(alpha, rel=0.5)


def test_images_without_a_model_to_read_them_are_refused(tmp_path: Path) -> None:
    (tmp_path / "heads.toml").write_text(TABLE)
    plan = plan_study(read_study(tmp_path / "heads.toml"), scale="tiny", out=tmp_path / "out", places={"toy": tmp_path})
    with pytest.raises(ConfigError, match="names no model to make one with"):
        run_study(plan)


@pytest.mark.slow
def test_images_become_a_cache_once(tmp_path: Path, squares: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import timm
    from safetensors.torch import save_file

    save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "weights.safetensors")
    (tmp_path / "heads.toml").write_text(TABLE + '[features]\nmodel = "test_resnet"\nimage_size = 32\n')
    plan = plan_study(
        read_study(tmp_path / "heads.toml"), scale="tiny", out=tmp_path / "out", places={"toy": squares},
        weights=tmp_path / "weights.safetensors", seeds=1,
    )  # fmt: skip
    assert run_study(plan).missing == ()
    stamps = [p.stat().st_mtime_ns for p in sorted((plan.out / "features" / "toy").glob("*.parquet"))]
    assert run_study(plan).missing == ()
    assert stamps == [p.stat().st_mtime_ns for p in sorted((plan.out / "features" / "toy").glob("*.parquet"))]
