"""From a study to its jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibrant.atomic import write_json
from calibrant.errors import ConfigError
from calibrant.settings.heads import HeadConfig
from calibrant.train.heads.config import head_config
from calibrant.train.jobs.job import result_file
from calibrant.train.losses import create_loss
from calibrant.train.model.network import build_network
from calibrant.train.recipe import laid_over
from calibrant.train.study.file import names_of_studies, read_study
from calibrant.train.study.plan import Cell, StudyPlan, Trainings, part_of, plan_study
from calibrant.train.study.points import Points


def plan_of(study_file: Path, squares: Path, scale: str = "tiny") -> StudyPlan:
    return plan_study(read_study(study_file), scale=scale, out=study_file.parent / "out", places={"squares": squares})


def test_a_scale_takes_its_share_of_images_and_epochs(study_file: Path, squares: Path) -> None:
    job = Trainings(plan_of(study_file, squares)).job(Cell("squares", "default", "ce", 1))
    assert job is not None
    assert (job.config.schedule.epochs, job.config.schedule.warmup_epochs) == (2, 1)
    assert job.config.data.share == pytest.approx(60 / 160)  # a fifth of the 200 is for validation
    assert job.config.data.test_share == 0.5
    whole = Trainings(plan_of(study_file, squares, "full")).job(Cell("squares", "default", "ce", 1))
    assert whole is not None
    assert (whole.config.schedule.epochs, whole.config.data.share) == (4, 1.0)
    assert whole.key != job.key


def test_seeds_are_outermost(study_file: Path, squares: Path) -> None:
    cells = plan_of(study_file, squares).cells()
    assert [c.seed for c in cells] == [1] * 4 + [2] * 4


def test_a_control_waits_for_the_number_that_it_takes(study_file: Path, squares: Path) -> None:
    plan = plan_of(study_file, squares)
    source, control = Trainings(plan), Cell("squares", "default", "ls, its alpha", 2)
    assert source.job(control) is None
    for seed, alpha in ((1, 0.02), (2, 0.0312345678)):
        job = source.job(Cell("squares", "default", "fedlas-ls", seed))
        assert job is not None
        write_json(result_file(plan.out, job.key), {"measured": {"mean_alpha": alpha}, "seconds": 1.0})
    job = source.job(control)
    assert job is not None
    assert job.config.loss.options == {"alpha": 0.0312346}  # of its own seed


def test_keys_do_not_know_where_the_study_is_run(study_file: Path, squares: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere.npz"
    moved.write_bytes(squares.read_bytes())
    keys = []
    for place, out in ((squares, "a"), (moved, "b")):
        plan = plan_study(read_study(study_file), scale="tiny", out=tmp_path / out, places={"squares": place})
        job = Trainings(plan).job(plan.cells()[0])
        assert job is not None
        keys.append(job.key)
    assert keys[0] == keys[1]


def test_unknown_scales_and_data_are_named(study_file: Path, squares: Path) -> None:
    with pytest.raises(ConfigError, match='no scale "tinny".*did you mean "tiny"'):
        plan_of(study_file, squares, "tinny")
    with pytest.raises(ConfigError, match='no data "circles"'):
        plan_study(read_study(study_file), scale="tiny", out=study_file.parent, places={"circles": squares})


@pytest.mark.parametrize("name", names_of_studies())
def test_every_method_of_a_study_of_the_package_is_a_configuration_with_a_loss(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainings, "_sizes", lambda self, name, data: (name, 1000, 100, 100))
    study = read_study(name)
    places = {} if study.kind == "points" else {d.name: tmp_path for d in study.data}
    plan = plan_study(study, scale="full", out=tmp_path, places=places, seeds=1)
    counts, keys, built = list(range(20, 10, -1)), [], list[Any]()
    here = (plan.data[-1].name, plan.networks[-1].name)
    for cell in [c for c in plan.cells() if (c.data, c.network) == here]:
        if study.kind == "heads":
            config = _head_config(plan, cell)
            loss, options = config.loss.name, config.loss.options
        elif study.kind == "points":
            points = Points(plan).job(cell)
            options = dict(points.config.loss)
            loss = options.pop("name")
            keys.append(points.key)
        else:
            job = Trainings(plan).job(cell)
            if job is None:  # waits for what another method measures
                continue
            loss, options = job.config.loss.name, job.config.loss.options
            keys.append(job.key)
            if job.config.model not in built:  # a reduction may not fit the network
                build_network(replace(job.config, model=replace(job.config.model, pretrained=False)), 10)
                built.append(job.config.model)
        create_loss(loss, num_classes=10, feature_dim=4, class_counts=counts, **options)
    assert len(set(keys)) == len(keys), "two methods are the same training"


def _head_config(plan: StudyPlan, cell: Cell) -> HeadConfig:
    table: dict[str, Any] = {}
    d, m = part_of(plan.data, cell.data), part_of(plan.methods, cell.method)
    for over in (plan.study.base, d.set, m.set):
        table = laid_over(table, over)
    return head_config(table, [f"seed={cell.seed}"])
