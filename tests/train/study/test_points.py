"""Studies in the plane."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant.errors import ConfigError
from calibrant.train.study.file import read_study
from calibrant.train.study.plan import StudyPlan, plan_study
from calibrant.train.study.points import (
    EXTENT,
    GRID,
    FixedTemperatures,
    PointsConfig,
    draw,
    grid,
    plane_of,
    points_key,
    trained,
)
from calibrant.train.study.run import join_study, run_study

TABLE = """
title = "plane"
kind = "points"
metrics = ["accuracy", "nll"]
seeds = 2
base = { train = 60, test = 200, steps = 60 }
data = [{ name = "plane" }]
[[method]]
name = "ce"
[[method]]
name = "vace, lam 0"
set.loss = { name = "vace", lam = 0.0 }
[[method]]
name = "vace"
set.loss.name = "vace"
[[method]]
name = "tau 2, 1"
set.tau = [2.0, 1.0]
[scale.tiny]
[[figure]]
name = "boundary"
kind = "boundary"
"""


def plan_of(folder: Path, table: str = TABLE) -> StudyPlan:
    (folder / "plane.toml").write_text(table)
    return plan_study(read_study(folder / "plane.toml"), scale="tiny", out=folder / "out", places={})


def test_a_study_without_data_has_a_table_a_picture_and_a_twin_that_differs_by_0(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    done = run_study(plan)
    assert (done.finished, done.total) == (8, 8)
    (block,) = join_study(plan).blocks
    assert (block.images, block.seeds, block.view) == (400, (1, 2), "")
    lines = {line.method: line for line in block.lines}
    for estimate in lines["vace, lam 0"].estimates.values():
        assert (estimate.difference, estimate.low, estimate.high) == (0.0, 0.0, 0.0)
    assert lines["vace"].estimates["nll"].difference != 0.0
    assert lines["vace"].measured["tau_wide"] > lines["vace"].measured["tau_narrow"]
    assert (lines["tau 2, 1"].measured["tau_wide"], lines["tau 2, 1"].measured["tau_narrow"]) == (2.0, 1.0)
    assert lines["ce"].measured["plane_of_wide"] == lines["ce"].measured["plane_of_wide_raw"]
    assert lines["ce"].measured["accuracy_raw"] == pytest.approx(lines["ce"].estimates["accuracy"].mean)
    assert "tau 2, 1" in (plan.out / "boundary.svg").read_text()


def test_the_spread_of_drawn_points_is_the_one_asked_for_and_test_points_hang_on_no_seed() -> None:
    config = PointsConfig()
    x, y = draw(config, 20000, 3)
    assert x[y == 0].std(0).tolist() == pytest.approx([1.6, 1.6], abs=0.03)
    assert x[y == 1].std(0).tolist() == pytest.approx([0.6, 0.6], abs=0.02)
    assert x[y == 1].mean(0).tolist() == pytest.approx([1.5, 0.0], abs=0.02)
    assert points_key(config) != points_key(replace(config, seed=2))


def test_a_network_learns_to_tell_the_classes_nearly_as_well_as_bayes() -> None:
    """Bayes decides by (|x - c0| / s0)^2 + 4 log s0 against (|x - c1| / s1)^2 + 4 log s1."""
    config = PointsConfig(steps=200)
    net, _ = trained(config)
    x, y = draw(config, 5000, 9)
    d = [((x - torch.tensor([c, 0.0])) ** 2).sum(1) / s**2 + 4 * np.log(s) for c, s in ((-1.5, 1.6), (1.5, 0.6))]
    bayes = float(((d[1] < d[0]).long() == y).float().mean())
    assert bayes - 0.02 < float((net(x).argmax(1) == y).float().mean()) < bayes + 0.003


def test_temperatures_that_were_given_divide_the_logits() -> None:
    z = torch.tensor([[4.0, 1.0]])
    assert FixedTemperatures((2.0, 0.5)).adjust_logits(z).tolist() == [[2.0, 2.0]]


def test_the_picture_s_rows_run_from_below() -> None:
    points = grid()
    assert len(points) == GRID**2
    assert points[0].tolist() == [-EXTENT, -EXTENT]
    assert points[GRID - 1].tolist() == [EXTENT, -EXTENT]
    assert points[-1].tolist() == [EXTENT, EXTENT]


def test_a_plane_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, TABLE.replace("seeds = 2", "seeds = 1"))
    run_study(plan)
    from calibrant.train.study.run import source_of

    source = source_of(plan)
    job = source.job(plan.cells()[0])
    with_tau, raw = plane_of(job.run(tmp_path))
    net, _ = trained(job.config)
    with torch.no_grad():
        z = net(torch.from_numpy(grid())).numpy().reshape(GRID, GRID, 2)
    np.testing.assert_array_equal(raw, z[..., 0] - z[..., 1])
    np.testing.assert_array_equal(with_tau, raw)  # cross-entropy has no temperatures


@pytest.mark.parametrize(("old", "new", "said"), [
    ("set.tau = [2.0, 1.0]", "set.tau = [2.0]", "a number above 0 for each of the two"),
    ("set.tau = [2.0, 1.0]", 'set.tau = [2.0, 1.0]\nset.loss.name = "vace"', "a loss and fixed temperatures"),
    ("steps = 60", "steps = 0", "are at least 1"),
    ("steps = 60", "spreads = [1.0]", "spreads are two numbers"),
    ("steps = 60", "stepps = 60", 'no key "stepps"'),
])  # fmt: skip
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run_study(plan_of(tmp_path, TABLE.replace(old, new)))


def test_data_are_refused_as_the_points_are_drawn(tmp_path: Path) -> None:
    plan_of(tmp_path)
    with pytest.raises(ConfigError, match="draws its points"):
        plan_study(read_study(tmp_path / "plane.toml"), scale="tiny", out=tmp_path, places={"plane": tmp_path})
