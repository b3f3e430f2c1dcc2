"""Several commands on one folder: each job is run by one of them, also where one is killed."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from calibrant.train.jobs.claim import FOLDER, claim, turn
from calibrant.train.jobs.run import run_jobs
from tests.train.jobs.test_run import Square, ran

ROOT = Path(__file__).parents[3]


def start(folder: Path, code: str) -> subprocess.Popen[bytes]:
    """A process of its own that runs the code, in which `out` is the folder."""
    script = folder / f"start{len(list(folder.glob('start*.py')))}.py"
    script.write_text(
        "import time\nfrom pathlib import Path\nfrom calibrant.train.jobs.claim import claim\n"
        "from calibrant.train.jobs.run import run_jobs\nfrom tests.train.jobs.test_run import Square\n"
        f"if __name__ == '__main__':\n    out = Path({str(folder / 'out')!r})\n    {code}\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen([sys.executable, str(script)], env=env, cwd=ROOT, stdout=subprocess.DEVNULL)


def until(there: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_claim_is_one_s_own_until_it_is_let_go_and_leaves_no_file(tmp_path: Path) -> None:
    with claim(tmp_path, "a") as mine, claim(tmp_path, "a") as again, claim(tmp_path, "b") as other:
        assert (mine, again, other) == (True, False, True)
    with claim(tmp_path, "a") as mine:
        assert mine
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_claim_dies_with_its_process_although_its_file_stays(tmp_path: Path) -> None:
    process = start(tmp_path, "with claim(out, 'a') as mine: (out / 'seen').write_text(str(mine)); time.sleep(600)")
    until(lambda: (tmp_path / "out" / "seen").is_file())
    with claim(tmp_path / "out", "a") as mine:
        assert not mine
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (tmp_path / "out" / FOLDER / "a").is_file()
    with claim(tmp_path / "out", "a") as mine:
        assert mine


def test_two_commands_on_one_folder_share_the_jobs_and_run_none_twice(tmp_path: Path) -> None:
    out = tmp_path / "out"
    processes = [start(tmp_path, "run_jobs([Square(n, 0.1) for n in range(20)], out, workers=1)") for _ in range(2)]
    assert [process.wait(120) for process in processes] == [0, 0]
    assert ran(out) == list(range(20))
    assert len(list((out / "runs").glob("*.json"))) == 20


def test_what_a_killed_command_was_at_is_run_by_the_one_that_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other command is at job 7 for ten minutes; it is killed once this one has nothing else to do."""
    out = tmp_path / "out"
    process = start(tmp_path, "run_jobs([Square(7, 600)], out, workers=1)")
    until(lambda: (out / FOLDER / "square7").is_file())
    said: list[str] = []

    def kill(said_now: str, *of: object) -> None:
        said.append(said_now % of)
        assert ran(out) == [1]
        process.send_signal(signal.SIGKILL)
        process.wait()

    monkeypatch.setattr(logging.getLogger("calibrant.train.jobs.run"), "warning", kill)
    run_jobs([Square(7), Square(1)], out, workers=1)
    assert ran(out) == [1, 7]
    assert said == [f"{out}: another command is at 1 of these runs; waiting for it"]


def test_a_turn_waits_and_says_so_once(tmp_path: Path) -> None:
    process = start(tmp_path, "with claim(out, 'a'): (out / 'seen').touch(); time.sleep(1.2)")
    until(lambda: (tmp_path / "out" / "seen").is_file())
    told: list[str] = []
    with turn(tmp_path / "out", "a", lambda: told.append("waiting")), claim(tmp_path / "out", "a") as other:
        assert not other
    assert told == ["waiting"]
    process.wait()


def test_without_locks_one_is_warned_once_and_may_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import fcntl

    def refused(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    for _ in range(2):
        with claim(tmp_path, "a") as mine:
            assert mine
    assert caplog.text.count("has no locks") == 1
