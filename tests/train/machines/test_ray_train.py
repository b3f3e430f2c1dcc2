"""A group of processes on a cluster of Ray: how it is laid out, what ends it, and the real thing with losses."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from calibrant.errors import ConfigError, DataError, MissingExtra, ModelError
from calibrant.train.cli import train
from calibrant.train.config import TrainConfig, train_config
from calibrant.train.loop.epochs import Epoch
from calibrant.train.machines import ray_train
from calibrant.train.machines.ray_train import (
    Machine,
    Workers,
    cores_each,
    fit_on_ray,
    machines_of,
    usual_workers,
    wants_gpus,
    with_whole_paths,
)
from calibrant.train.machines.ray_worker import Ear, Lost, Task, train_here
from tests.train.machines.tiny import assert_same_run, write_config

ROOT = Path(__file__).resolve().parents[3]
HERE = importlib.util.find_spec("ray") is not None
CPU = [Machine(8, 0), Machine(8, 0), Machine(0, 0)]
GPU = [Machine(16, 4), Machine(4, 0)]


def test_processes_are_laid_out_so_that_none_lies_on_two_machines() -> None:
    assert [cores_each(CPU, n, gpu=False) for n in (1, 2, 3, 4, 5, 16, 40)] == [8, 8, 4, 4, 2, 1, 1]
    assert [cores_each(GPU, n, gpu=True) for n in (1, 2, 4)] == [16, 8, 4]
    assert cores_each([], 2, gpu=False) == 1
    assert usual_workers(CPU, gpu=False) == Workers(1, 2)
    assert usual_workers(GPU, gpu=True) == Workers(1, 4)
    assert usual_workers([], gpu=False) == Workers(1, 1)
    node = {"Resources": {"CPU": 8.0, "memory": 1.0}, "Alive": True}
    assert machines_of([node, {**node, "Alive": False}]) == [Machine(8.0, 0.0)]


def test_gpus_are_taken_where_there_are_some_and_nobody_says_otherwise() -> None:
    assert wants_gpus("auto", GPU)
    assert wants_gpus("cuda", GPU)
    assert not wants_gpus("auto", CPU)
    assert not wants_gpus("cpu", GPU)
    with pytest.raises(ConfigError, match="no machine of the cluster has a GPU"):
        wants_gpus("cuda", CPU)
    with pytest.raises(ConfigError, match="each process has a GPU of its own"):
        wants_gpus("cuda:1", GPU)


def test_paths_are_whole_and_names_of_other_things_stay(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(image_folder.parent)
    (tmp_path / "w.safetensors").touch()
    table = {
        "out": "runs/x", "data": {"path": image_folder.name, "cache_dir": "pixels"},
        "model": {"weights": os.path.relpath(tmp_path / "w.safetensors")},
    }  # fmt: skip
    whole = with_whole_paths(train_config(table))
    assert whole.out == image_folder.parent / "runs" / "x"
    assert whole.data.path == image_folder
    assert whole.data.cache_dir == image_folder.parent / "pixels"
    assert whole.model.weights == tmp_path / "w.safetensors"
    other = with_whole_paths(train_config({"data": {"path": "plugin:birds"}}))
    assert (str(other.data.path), other.model.weights) == ("plugin:birds", None)


def test_what_the_command_line_refuses(image_folder: Path, tmp_path: Path) -> None:
    line = ["--data", str(image_folder), "--out", str(tmp_path / "run")]
    for more, text in (
        (["--workers", "2"], "--workers: belongs to --engine ray"),
        (["--engine", "ray", "--workers", "two"], "is not a number, or two like 2:4"),
        (["--engine", "ray", "--workers", "4:2"], "--workers: 4:2 is no range"),
        (["--engine", "ray", "--workers", "0"], "--workers: 1:0 is no range"),
    ):
        error = CliRunner().invoke(train, [*line, *more]).exception
        assert isinstance(error, ConfigError)
        assert text in str(error)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").touch()
    error = CliRunner().invoke(train, [*line, "--engine", "ray"]).exception  # before a cluster is started
    assert "holds a run already" in str(error)
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["config.json"]


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = train_config({"out": str(tmp_path / "run"), "data": {"path": str(tmp_path)}})
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"calibrant train --engine ray needs ray.*calibrant\[ray\]"):
        fit_on_ray(config)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))  # type: ignore[arg-type]
    with pytest.raises(MissingExtra, match=r"needs ray\[train\].*calibrant\[ray\]"):  # Ray without pandas
        fit_on_ray(config)
    assert not (tmp_path / "run").exists()


def test_a_job_that_is_started_again_passes_by_its_own_run_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = train_config({"out": str(tmp_path), "data": {"path": str(tmp_path)}})
    (tmp_path / "config.json").write_text('{"kind": "run", "format_version": 1, "launch": "job 7"}')
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("CALIBRANT_LAUNCH", "job 7")
    with pytest.raises(MissingExtra):  # it would have gone on
        fit_on_ray(config)
    monkeypatch.setenv("CALIBRANT_LAUNCH", "job 8")
    with pytest.raises(ConfigError, match="holds a run already"):
        fit_on_ray(config)


class _Handle:
    """An actor `Ear` without a cluster."""

    def __init__(self) -> None:
        self.ear = Ear()
        self.hear = SimpleNamespace(remote=self.ear.hear)


def test_a_process_says_what_it_does_and_refuses_a_folder_of_its_own(small: Any, tmp_path: Path) -> None:
    config: TrainConfig = small()
    seal, handle = tmp_path / "seal", _Handle()
    task = Task(config, "one", seal, handle, threads=1)
    with pytest.raises(ModelError, match="run: a machine of the cluster does not see this folder"):
        train_here({"task": task})
    seal.touch()
    train_here({"task": task})
    line, *epochs = handle.ear.taken()
    assert isinstance(line, str)
    assert [e.epoch for e in epochs if isinstance(e, Epoch)] == [1, 2]
    assert handle.ear.taken() == []
    train_here({"task": task})  # as Ray does where a process was lost
    assert handle.ear.taken()[0] == "started again with 1 process: goes on at the predictions"
    with pytest.raises(ConfigError, match="holds a run already"):
        train_here({"task": replace(task, launch="two")})


@pytest.mark.skipif(not HERE, reason="ray is not installed")
def test_a_group_is_started_again_as_long_as_that_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from calibrant.train.machines import ray_losses

    now = [0.0]
    monkeypatch.setattr(ray_losses, "time", SimpleNamespace(monotonic=lambda: now[0]))
    checkpoint, handle = tmp_path / "checkpoint.safetensors", _Handle()
    losses = ray_losses.Losses(checkpoint, handle)

    def fail(seconds: float = 60.0, error: Exception | None = None) -> None:
        now[0] += seconds
        losses.after_exception(None, {1: error or RuntimeError("gone")})

    for n in range(5):  # each after progress
        checkpoint.write_text(str(n))
        os.utime(checkpoint, ns=(n, n))
        fail()
    fail()
    fail(2.0)  # seen by the next look: the same loss
    words = [word.words for word in handle.ear.taken() if isinstance(word, Lost)]
    assert words == ["process 1 failed (gone); the group is started again at the last checkpoint"] * 6
    with pytest.raises(ModelError, match=r"process 1 failed \(gone\), 3 times in a row without a new checkpoint"):
        fail()
    with pytest.raises(DataError, match="damaged"):  # ours: no second try
        losses.after_exception(None, {0: RuntimeError("closed"), 1: DataError("damaged")})


def test_what_ended_it_is_said_plainly(tmp_path: Path) -> None:
    wrapped = RuntimeError("ray")
    wrapped.controller_failure = DataError("damaged", where="a.png")  # type: ignore[attr-defined]
    assert str(ray_train._plain(wrapped, tmp_path)) == "a.png: damaged"
    wrapped = RuntimeError("ray")
    wrapped.worker_failures = {0: KeyError(), 1: ConfigError("no such loss")}  # type: ignore[attr-defined]
    assert str(ray_train._plain(wrapped, tmp_path)) == "no such loss"
    assert "Ray Train gave up (the end)" in str(ray_train._plain(RuntimeError("long\nthe end"), tmp_path))


@pytest.mark.slow  # 80 s; six minutes on a machine that others use
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not HERE, reason="ray is not installed")
def test_a_lost_process_and_lost_machines_leave_the_result_as_it_was(
    image_folder: Path, tmp_path: Path, undisturbed: Path
) -> None:
    """A process is killed, then a machine with one to spare, then one without: the last one goes on alone."""
    lost = tmp_path / "lost"
    env = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with tempfile.TemporaryDirectory(prefix="ray") as short:  # paths of sockets have 107 letters
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("three_machines.py")),
             str(write_config(tmp_path / "lost.toml", image_folder, lost))],
            cwd=ROOT, capture_output=True, text=True, timeout=1100, check=False,
            env={**env, "RAY_TMPDIR": short, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT),
                 "CALIBRANT_OVERWRITE": "0"},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert "cub" in told["refused"]
    assert not lost.with_name("refused").exists()
    again = [line for line in told["said"] if line.startswith("started again")]
    assert [line.split(":")[0].removeprefix("started again with ") for line in again] == [
        "2 processes", "2 processes", "1 process",
    ], done.stdout.splitlines()[-1]  # fmt: skip
    assert_same_run(undisturbed, lost)
