"""Real processes of torchrun, one of them killed; and what a start of the group may find of the one before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

from calibrant.errors import ConfigError, ModelError
from calibrant.train.config import TrainConfig
from calibrant.train.engine import fit
from calibrant.train.machines.torchrun import launch_name, meeting, raise_lost
from tests.train.machines.tiny import assert_same_run, children, epochs_of, kill, wait_for_epoch, write_config

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow  # 30 s
def test_a_killed_process_costs_less_than_an_epoch_and_nothing_of_the_result(
    image_folder: Path, tmp_path: Path, undisturbed: Path
) -> None:
    lost, said, told = tmp_path / "lost", tmp_path / "said.txt", tmp_path / "told.json"
    config = write_config(tmp_path / "lost.toml", image_folder, lost)
    kills = ((3, 1), (7, 0))  # the second is the one that writes the files
    with open(said, "w") as errors, open(told, "w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "3",
             "-m", "calibrant", "train", str(config), "--json"],
            cwd=ROOT, stdout=output, stderr=errors, start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CALIBRANT_OVERWRITE": "0"},
        )  # fmt: skip
        try:
            for epoch, rank in kills:
                wait_for_epoch(lost, epoch, lambda: process.poll() is None, 300)
                time.sleep(0.05)
                kill(children(process.pid)[rank])
            process.wait(500)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    assert process.returncode == 0, said.read_text()[-3000:]
    again = [line for line in said.read_text().splitlines() if line.startswith("started again with 2 processes")]
    assert len(again) == len(kills)
    for line, (epoch, _) in zip(again, kills, strict=True):  # at most the epoch in which the process was killed
        assert int(line.split("epoch ")[1].split("/")[0]) > epoch
    assert "[rank" not in said.read_text()  # before each line of a traceback
    assert json.loads(told.read_text())["best_epoch"] >= 1
    assert_same_run(undisturbed, lost)


@pytest.mark.slow  # 10 s
def test_a_run_that_is_there_is_refused_in_a_line_of_each_process(
    image_folder: Path, tmp_path: Path, undisturbed: Path
) -> None:
    config = write_config(tmp_path / "again.toml", image_folder, undisturbed)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
         "-m", "calibrant", "train", str(config)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert any(f"{undisturbed}: holds a run already" in line for line in errors)
    assert "[rank" not in done.stderr


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        ("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:3517", True),
        ("[gloo/transport/tcp/pair.cc:464] Read error [::1]:1: Connection reset by peer", True),
        ("mat1 and mat2 shapes cannot be multiplied", False),
    ],
)
def test_what_a_lost_process_leaves_behind_is_a_line_and_nothing_else_is(words: str, lost: bool) -> None:
    error = RuntimeError(words)
    with (
        pytest.raises(ModelError, match="^process 1: another process of the group has ended") if lost else nullcontext()
    ):
        raise_lost(error, 1)


def test_a_launch_goes_on_with_its_own_run_and_with_no_other(
    small: Callable[..., TrainConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "first")
    said: list[str] = []
    run = fit(config, on_start=said.append)
    assert len(said) == 1
    line = (run / "metrics.jsonl").read_text()
    fit(config, overwrite=True, on_start=said.append)  # a restart has the words of the first start
    assert said[1] == "started again with 1 process: goes on at the predictions"
    assert (run / "metrics.jsonl").read_text() == line  # the seconds of each epoch would differ

    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "second")
    with pytest.raises(ConfigError, match="holds a run already"):
        fit(config)
    fit(config, resume=True)
    fit(config, overwrite=True)
    assert (run / "metrics.jsonl").read_text() != line
    assert epochs_of(run) == [1, 2]


def test_a_launch_that_died_before_its_first_checkpoint_begins_anew(
    small: Callable[..., TrainConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "first")
    run = fit(small())
    (run / "checkpoint.safetensors").unlink()
    (run / "epochs").mkdir()
    (run / "epochs" / ".epoch-0001.123.tmp.safetensors").touch()
    fit(small())
    assert epochs_of(run) == [1, 2]
    assert list(run.rglob(".*")) == []


def test_torchrun_without_a_name_is_known_by_its_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    monkeypatch.delenv("CALIBRANT_LAUNCH", raising=False)
    assert launch_name() is None
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert str(launch_name()).endswith(f":{os.getppid()}")
    monkeypatch.setenv("CALIBRANT_LAUNCH", "job 7")
    assert launch_name() == "job 7"


def _meet(store: dist.Store, world: int, order: list[int]) -> dict[int, str]:
    names: dict[int, str] = {}

    def join(rank: int) -> None:
        names[rank] = meeting(store.clone(), rank, world, seconds=10)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in order]
    for thread in threads:
        thread.start()
        time.sleep(0.15)  # each has looked around before the next one comes
    for thread in threads:
        thread.join(20)
    return names


def test_a_group_that_starts_again_meets_under_a_name_of_its_own() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=10))
    seen: set[str] = set()
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        names = _meet(store, 3, order)
        assert set(names) == {0, 1, 2}
        assert len(set(names.values())) == 1
        seen |= set(names.values())
    assert len(seen) == 3
    store.set("calibrant/proposed", "of a first rank that died while it waited")
    assert _meet(store, 2, [1, 0])[1] not in seen
    with pytest.raises(ModelError, match="process 1: the first of 2 processes was not there after 0.2 s"):
        meeting(store, 1, 2, seconds=0.2)
