from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calibrant.errors import ConfigError
from calibrant.train.cli import search as command
from calibrant.train.search import Trial, parse_choice, search


def _table(image_folder: Path, out: Path) -> dict[str, Any]:
    return {
        "out": str(out), "data": {"path": str(image_folder)}, "model": {"name": "test_resnet", "image_size": 32},
        "loss": {"name": "vace"}, "schedule": {"epochs": 1}, "engine": {"tensorboard": False, "batch_size": 8},
    }  # fmt: skip


def test_a_grid_runs_every_combination_once_and_ranks_by_the_metric(image_folder: Path, tmp_path: Path) -> None:
    table = _table(image_folder, tmp_path)
    choices = [parse_choice("loss.lam=0.25,1.0"), parse_choice("optimizer.lr=0.001,0.01")]
    ranked = search(table, choices, settings=["engine.select=nll"])
    assert {t.settings for t in ranked} == {
        (f"loss.lam={a}", f"optimizer.lr={b}") for a in ("0.25", "1.0") for b in ("0.001", "0.01")
    }
    assert [t.value for t in ranked] == sorted(t.val["nll"] for t in ranked)
    written = json.loads((tmp_path / "search.json").read_text())
    assert [t["run"] for t in written["trials"]] == [t.run.name for t in ranked]
    stamps = {t.run: (t.run / "model.safetensors").stat().st_mtime_ns for t in ranked}
    again = search(table, [*choices[:1], parse_choice("optimizer.lr=0.001,0.01,0.1")], settings=["engine.select=nll"])
    assert len(again) == 6
    assert all((run / "model.safetensors").stat().st_mtime_ns == stamp for run, stamp in stamps.items())


def test_optuna_proposes_within_the_range_and_learns_from_values(image_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    seen: list[Trial] = []
    search(
        _table(image_folder, tmp_path), [parse_choice("loss.lam=0.1:2.0:log")], trials=3, seed=1, on_trial=seen.append
    )
    values = [float(t.settings[0].partition("=")[2]) for t in seen]
    assert len(set(values)) == 3
    assert all(0.1 <= v <= 2.0 for v in values)


def test_what_cannot_be_searched_is_refused(image_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not key=a,b,c"):
        parse_choice("loss.lam")
    with pytest.raises(ConfigError, match="not a range"):
        parse_choice("loss.lam=2:1")
    with pytest.raises(ConfigError, match="a range needs --trials"):
        search(_table(image_folder, tmp_path), [parse_choice("loss.lam=0:1")])


def test_the_command_prints_a_table(image_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "base.toml"
    file.write_text(
        '[model]\nname = "test_resnet"\nimage_size = 32\n[schedule]\nepochs = 1\n[engine]\ntensorboard = false\n'
    )
    done = CliRunner().invoke(
        command, [str(file), "--data", str(image_folder), "--out", str(tmp_path / "s"), "--over", "seed=1,2"],
        catch_exceptions=False,
    )  # fmt: skip
    assert done.exit_code == 0
    assert "seed=1" in done.stdout
    assert "accuracy" in done.stdout
