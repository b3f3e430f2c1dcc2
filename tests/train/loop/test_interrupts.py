"""Ctrl-C at the real command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from calibrant.train import load_run

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_ctrl_c_ends_in_one_line_with_exit_code_2_and_a_run_that_goes_on(
    image_folder: Path, tmp_path: Path, workers: str
) -> None:
    out = tmp_path / "run"
    line = [
        sys.executable, "-m", "calibrant", "train", "--data", str(image_folder), "--out", str(out), "--device", "cpu",
        "--model", "test_resnet", "--image-size", "32", "--batch-size", "8", "--epochs", "400",
        "--set", "data.cache=off", "--set", f"data.workers={workers}", "--set", "engine.tensorboard=false",
    ]  # fmt: skip
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        line, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        while not (said := process.stderr.readline()).startswith("epoch   2/400"):
            assert said, "ended early"
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the loader workers too
        rest = process.stderr.read()
        assert process.wait(60) == 2
    assert "Traceback" not in rest
    *_, advice, last = (line for line in rest.splitlines() if line.strip())
    assert advice == f"go on with: calibrant train --resume --out {out}"
    assert last.startswith("Stopped: interrupted")
    assert load_run(out).class_names == ("blue", "green", "red")
    with subprocess.Popen([*line, "--resume"], cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True) as again:
        assert again.stderr is not None
        first = next(said for said in again.stderr if said.startswith("epoch"))
        again.terminate()
    assert int(first.split("/")[0].split()[1]) >= 3
