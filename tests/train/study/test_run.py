"""What a study runs, and what it does not run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant.errors import ConfigError
from calibrant.train.study.file import read_study
from calibrant.train.study.plan import plan_study
from calibrant.train.study.run import join_study, run_study


def test_a_study_runs_what_waits_for_others_and_nothing_twice(study_file: Path, squares: Path) -> None:
    plan = plan_study(
        read_study(study_file), scale="tiny", out=study_file.parent / "out", places={"squares": squares}, seeds=1
    )
    assert run_study(plan, shard="1/2").finished < 4
    done = run_study(plan)
    assert (done.total, done.finished, done.missing) == (4, 4, ())
    stamps = {f.name: f.stat().st_mtime_ns for f in (plan.out / "runs").iterdir()}
    assert len(stamps) == 4
    (plan.out / "runs" / next(iter(stamps))).unlink()
    again = run_study(plan)
    assert again.finished == 4
    after = {f.name: f.stat().st_mtime_ns for f in (plan.out / "runs").iterdir()}
    assert sum(after[name] != stamp for name, stamp in stamps.items()) == 1


def test_a_method_that_is_silently_another_one_differs_by_0_and_its_interval_holds_0(
    study_file: Path, squares: Path
) -> None:
    """vace with lam = 0 divides by one: cross-entropy under another name."""
    plan = plan_study(read_study(study_file), scale="tiny", out=study_file.parent / "out", places={"squares": squares})
    run_study(plan)
    joined = join_study(plan)
    assert [b.view for b in joined.blocks] == ["", "temperature"]
    for block in joined.blocks:
        assert (block.seeds, block.images) == ((1, 2), 50)
        lines = {line.method: line for line in block.lines}
        for estimate in lines["vace, lam 0"].estimates.values():
            assert estimate.difference == 0.0
            assert estimate.low == estimate.high == 0.0
        assert lines["fedlas-ls"].estimates["nll"].difference != 0.0
        assert 0 < lines["fedlas-ls"].measured["mean_alpha"] < 0.1
    rows = (plan.out / "results.csv").read_text().splitlines()
    assert len(rows) == 1 + 4 * 2 * 2 * 5  # methods, seeds, views, metrics


def test_images_that_lie_in_foreign_are_told_apart_no_better_than_by_chance_where_they_are_the_known_ones(
    study_file: Path, squares: Path
) -> None:
    table = study_file.read_text().replace("test_images = 0.5", "test_images = 1.0")
    study_file.write_text(table + '[[foreign]]\nname = "the same"\n[[foreign]]\nname = "not here"\n')
    plan = plan_study(
        read_study(study_file), scale="tiny", out=study_file.parent / "out",
        places={"squares": squares, "the same": squares}, seeds=1,
    )  # fmt: skip
    run_study(plan)
    for block in join_study(plan).blocks:
        assert [line.estimates["auroc_the same"].mean for line in block.lines] == [0.5] * 4
    assert "auroc the same (%)" in (plan.out / "table.md").read_text()


def test_a_study_without_data_says_what_to_give(study_file: Path) -> None:
    plan = plan_study(read_study(study_file), scale="tiny", out=study_file.parent / "out", places={})
    with pytest.raises(ConfigError, match="pass --data squares=DIR"):
        run_study(plan)
