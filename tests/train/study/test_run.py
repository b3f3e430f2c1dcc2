"""What a study runs, and what it does not run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant.errors import ConfigError
from calibrant.train.study.file import read_study
from calibrant.train.study.plan import plan_study
from calibrant.train.study.run import run_study


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


def test_a_study_without_data_says_what_to_give(study_file: Path) -> None:
    plan = plan_study(read_study(study_file), scale="tiny", out=study_file.parent / "out", places={})
    with pytest.raises(ConfigError, match="pass --data squares=DIR"):
        run_study(plan)
