"""A study of heads: its data are feature caches, or images of which one is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.artifacts.predictions import read_predictions
from calibrant.calibration.fitting import fit_file, validation_file
from calibrant.calibration.metrics import nll
from calibrant.errors import ConfigError
from calibrant.train.heads.experiment import run_experiment
from calibrant.train.heads.features.cache import FeatureCache
from calibrant.train.heads.matrices import Matrices
from calibrant.train.heads.run import write_run
from calibrant.train.heads.sweep.jobs import HeadJob, job_key
from calibrant.train.jobs.job import read_result
from calibrant.train.study.file import read_study
from calibrant.train.study.heads import HeadRuns
from calibrant.train.study.plan import Cell, StudyPlan, plan_study
from calibrant.train.study.run import join_study, progress_of, run_study
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


AFTERWARDS = (
    TABLE.replace("posthoc = []", 'posthoc = ["temperature", "auto"]')
    .replace(
        "[scale.tiny]",
        """
[[method]]
name = "adjusted"
set.posthoc.adjust = 1.0
[[method]]
name = "tempered"
set.posthoc.temperature = "global"
[scale.tiny]""",
    )
    .replace("set.optimizer.epochs = 2", "set.optimizer = { epochs = 40, lr = 0.03 }\nset.loss.label_smoothing = 0.5")
)
OUT_OF_FOLD = AFTERWARDS.replace("data.val_per_class = 4\ndata.imbalance = 4.0", "data.folds = 3")


@pytest.fixture
def planned(tmp_path: Path) -> Callable[[str], StudyPlan]:
    def plan(table: str) -> StudyPlan:
        cache = write_cache(tmp_path / "feats")
        (tmp_path / "heads.toml").write_text(table)
        study = read_study(tmp_path / "heads.toml")
        return plan_study(study, scale="tiny", out=tmp_path / "out", places={"toy": cache.path})

    return plan


def _result(plan: StudyPlan, method: str, seed: int) -> tuple[HeadJob, dict[str, Any]]:
    job = HeadRuns(plan).job(Cell("toy", "default", method, seed))
    assert job is not None
    result = read_result(plan.out, job.key)
    assert result is not None
    return job, result


@pytest.mark.parametrize("table", [AFTERWARDS, OUT_OF_FOLD], ids=["held out", "out of fold"])
def test_a_calibrator_of_the_study_is_the_one_that_calibrate_fits_on_the_heads_held_out_rows(
    tmp_path: Path, planned: Callable[[str], StudyPlan], table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(table)
    runs = HeadRuns(plan)
    job = runs.job(Cell("toy", "default", "ce", 1))
    assert job is not None
    result = job.run(plan.out)
    monkeypatch.setattr(FeatureCache, "has_backbone", False)
    write_run(tmp_path / "run", runs.cache("toy"), run_experiment(Matrices(runs.cache("toy")), job.config))
    test = read_predictions(tmp_path / "run" / "predictions" / "test.parquet")
    for name in ("temperature", "auto"):
        probs = fit_file(validation_file(tmp_path / "run"), name).probabilities(test.logits)
        told = result["posthoc"][name]
        assert told["metrics"]["nll"] == pytest.approx(nll(probs, test.labels), abs=1e-9)
        assert told["metrics"]["nll"] != pytest.approx(result["test"]["nll"], abs=1e-4)
        assert told["rows"]["labels"] == result["test_rows"]["labels"]


def test_a_calibrator_comes_after_what_the_method_does_itself(planned: Callable[[str], StudyPlan]) -> None:
    plan = planned(AFTERWARDS)
    assert run_study(plan).missing == ()
    plain, tempered, chosen = ({line.method: line.estimates for line in b.lines} for b in join_study(plan).blocks)
    for method in plain:  # one temperature moves no decision: neither of the head nor of its own correction
        assert tempered[method]["macro_f1"].mean == plain[method]["macro_f1"].mean
    assert plain["adjusted"]["macro_f1"].mean != plain["ce"]["macro_f1"].mean
    assert chosen["ce"]["nll"].mean != tempered["ce"]["nll"].mean
    # Both ways to have a temperature are one; a second finds little left to do (of 24 rows its prior leaves some).
    gained = plain["ce"]["nll"].mean - tempered["ce"]["nll"].mean
    assert gained > 0.05
    assert tempered["ce"]["nll"].mean == pytest.approx(plain["tempered"]["nll"].mean, abs=1e-9)
    assert tempered["tempered"]["nll"].mean == pytest.approx(plain["tempered"]["nll"].mean, abs=0.2 * gained)


def test_results_that_hold_no_calibrator_are_not_taken_for_those_that_do(planned: Callable[[str], StudyPlan]) -> None:
    plan = planned(TABLE)
    assert run_study(plan).missing == ()
    before = [line.estimates for line in join_study(plan).blocks[0].lines]
    job, kept = _result(plan, "ce", 1)
    assert job.key == job_key(job.config, HeadRuns(plan).cache("toy"))  # that of a sweep
    plan = planned(TABLE.replace("posthoc = []", 'posthoc = ["temperature"]'))
    assert len(progress_of(plan, HeadRuns(plan)).missing) == 6
    assert run_study(plan).missing == ()
    plain, tempered = join_study(plan).blocks
    assert [line.estimates for line in plain.lines] == before
    assert tempered.view == "temperature"
    plan = planned(TABLE)
    assert progress_of(plan, HeadRuns(plan)).missing == ()
    assert _result(plan, "ce", 1)[1] == kept


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
