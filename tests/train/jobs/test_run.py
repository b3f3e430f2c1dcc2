"""A job runs once, wherever it was stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from calibrant.errors import DataError
from calibrant.train.jobs.job import read_result, result_file
from calibrant.train.jobs.run import run_jobs


@dataclass(frozen=True)
class Square:
    """Its result is the square of a number; each run leaves a trace."""

    number: int
    pause: float = 0.0

    @property
    def key(self) -> str:
        return f"square{self.number}"

    def run(self, out: Path) -> dict[str, Any]:
        import torch

        if self.number < 0:
            raise DataError("has no place here", where=str(self.number))
        time.sleep(self.pause)
        with open(out / "ran.txt", "a") as stream:
            stream.write(f"{self.number}\n")
        return {"square": self.number**2, "threads": torch.get_num_threads()}


def ran(out: Path) -> list[int]:
    return sorted(map(int, (out / "ran.txt").read_text().split()))


def test_what_has_a_result_is_not_run_again(tmp_path: Path) -> None:
    run_jobs([Square(1), Square(2)], tmp_path, workers=1)
    run_jobs([Square(1), Square(2), Square(3), Square(3)], tmp_path, workers=1)
    assert ran(tmp_path) == [1, 2, 3]
    assert [read_result(tmp_path, Square(n).key)["square"] for n in (1, 2, 3)] == [1, 4, 9]  # type: ignore[index]


def test_a_damaged_result_is_made_again(tmp_path: Path) -> None:
    run_jobs([Square(2)], tmp_path, workers=1)
    result_file(tmp_path, Square(2).key).write_text("{")
    run_jobs([Square(2)], tmp_path, workers=1)
    assert ran(tmp_path) == [2, 2]


def test_every_job_has_one_thread(tmp_path: Path) -> None:
    run_jobs([Square(5)], tmp_path, workers=1)
    assert read_result(tmp_path, "square5")["threads"] == 1  # type: ignore[index]


def test_one_that_fails_names_itself_and_keeps_the_others(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no place here"):
        run_jobs([Square(1), Square(-1)], tmp_path, workers=1)
    assert ran(tmp_path) == [1]


@pytest.mark.slow
def test_a_run_killed_anywhere_goes_on_and_leaves_no_process(tmp_path: Path) -> None:
    """kill -9 of the parent: its children leave too, and the next run makes only what is missing."""
    code = (
        "from pathlib import Path\nfrom tests.train.jobs.test_run import Square\n"
        "from calibrant.train.jobs.run import run_jobs\n"
        "if __name__ == '__main__':\n"
        f"    run_jobs([Square(n, pause=0.2) for n in range(40)], Path({str(tmp_path)!r}), workers=2)\n"
    )
    root = Path(__file__).parents[3]
    script = tmp_path / "start.py"
    script.write_text(code)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen([sys.executable, str(script)], env=env, cwd=root)
    while len(list((tmp_path / "runs").glob("*.json"))) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
    before = {f.name: f.stat().st_mtime_ns for f in (tmp_path / "runs").glob("*.json")}
    assert 3 <= len(before) < 40
    run_jobs([Square(n) for n in range(40)], tmp_path, workers=1)
    after = {f.name: f.stat().st_mtime_ns for f in (tmp_path / "runs").glob("*.json")}
    assert len(after) == 40
    assert all(after[name] == stamp for name, stamp in before.items())
    assert all(json.loads(f.read_text())["square"] >= 0 for f in (tmp_path / "runs").glob("*.json"))
