"""Background jobs, with small Python programs in the place of calibrant."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from calibrant.dashboard import jobs
from calibrant.errors import ConfigError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="process groups are a POSIX matter")

# Starts a child of its own, as a data loader would, and tells its number.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("child", child.pid, flush=True)
time.sleep(60)
"""


def until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def start(root: Path, monkeypatch: pytest.MonkeyPatch, program: str, done: str = "done") -> jobs.Job:
    real = subprocess.Popen

    def popen(command, **options):  # type: ignore[no-untyped-def]
        return real([sys.executable, "-c", program], **options)

    monkeypatch.setattr(jobs.subprocess, "Popen", popen)
    job = jobs.start(root, "a job", ["head"], done_when=root / done if done else None)
    monkeypatch.setattr(jobs.subprocess, "Popen", real)
    return job


def alive(pid: int) -> bool:
    return jobs._born(pid) is not None


def test_a_job_that_ends_well_is_done_and_tells_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(tmp_path, monkeypatch, "print('one'); print('two'); open('done', 'w')")
    until(lambda: not jobs.states(tmp_path)[0].running)
    (state,) = jobs.states(tmp_path)
    assert state.succeeded
    assert state.last_line == "two"


def test_a_job_that_fails_has_not_succeeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = start(tmp_path, monkeypatch, "raise SystemExit('Error: no such folder')")
    until(lambda: not jobs.states(tmp_path)[0].running)
    (state,) = jobs.states(tmp_path)
    assert not state.succeeded
    assert state.last_line == "Error: no such folder"
    jobs.forget(tmp_path, job.id)
    assert jobs.states(tmp_path) == []


def test_without_a_file_to_wait_for_the_output_must_be_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program, done in (("print('{\"ece\": 0.5}')", True), ("print('not json')", False)):
        start(tmp_path, monkeypatch, program, done="")
        until(lambda: not jobs.states(tmp_path)[0].running)
        state = jobs.states(tmp_path)[0]
        assert state.succeeded is done
        assert state.job.result() == ({"ece": 0.5} if done else None)


def test_what_was_there_before_does_not_count_as_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "done").write_text("")
    os.utime(tmp_path / "done", (1, 1))
    start(tmp_path, monkeypatch, "pass")
    until(lambda: not jobs.states(tmp_path)[0].running)
    assert not jobs.states(tmp_path)[0].succeeded


def test_cancel_ends_the_job_and_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = start(tmp_path, monkeypatch, PARENT)
    until(lambda: "child" in jobs.states(tmp_path)[0].last_line)
    child = int(jobs.states(tmp_path)[0].last_line.split()[1])
    assert alive(job.pid)
    assert alive(child)
    assert jobs.cancel(tmp_path, job.id)
    until(lambda: not alive(job.pid) and not alive(child))
    assert not jobs.states(tmp_path)[0].running
    assert not jobs.cancel(tmp_path, job.id)


def test_a_job_that_does_not_listen_is_ended_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    job = start(tmp_path, monkeypatch, program)
    until(lambda: jobs.states(tmp_path)[0].last_line == "up")
    assert jobs.cancel(tmp_path, job.id, patience=0.3)
    until(lambda: not alive(job.pid))


def test_another_dashboard_finds_the_job_and_can_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = start(tmp_path, monkeypatch, "import time; print('up', flush=True); time.sleep(60)")
    handle = jobs._handles.pop(tmp_path / jobs.FOLDER / f"{job.id}.json")
    assert jobs.states(tmp_path)[0].running
    assert jobs.cancel(tmp_path, job.id)
    handle.wait(5)
    assert not jobs.states(tmp_path)[0].running


def test_a_process_number_that_was_used_again_is_not_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = start(tmp_path, monkeypatch, "pass")
    file = tmp_path / jobs.FOLDER / f"{job.id}.json"
    jobs._handles.pop(file).wait(10)
    file.write_text(file.read_text().replace(f'"pid": {job.pid}', f'"pid": {os.getpid()}'))
    assert not jobs.states(tmp_path)[0].running


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the state of a process is read from /proc")
def test_the_remains_of_a_process_that_nobody_waited_for_do_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = start(tmp_path, monkeypatch, "pass")
    handle = jobs._handles.pop(tmp_path / jobs.FOLDER / f"{job.id}.json")
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays as a zombie
    assert Path(f"/proc/{job.pid}/stat").exists()
    assert not jobs.states(tmp_path)[0].running
    handle.wait(10)


def test_only_so_many_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = [start(tmp_path, monkeypatch, "import time; time.sleep(60)") for _ in range(jobs.MOST_RUNNING)]
    with pytest.raises(ConfigError, match="running already"):
        start(tmp_path, monkeypatch, "pass")
    for job in started:
        jobs.cancel(tmp_path, job.id)


def test_a_damaged_record_is_left_out(tmp_path: Path) -> None:
    (tmp_path / jobs.FOLDER).mkdir()
    (tmp_path / jobs.FOLDER / "x.json").write_text('{"id": 1')
    assert jobs.states(tmp_path) == []


def test_a_module_in_the_folder_of_the_runs_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("open('imported', 'w')")
    jobs.start(tmp_path, "help", ["--version"], done_when=tmp_path / "never")
    until(lambda: not jobs.states(tmp_path)[0].running)
    assert "calibrant" in jobs.states(tmp_path)[0].last_line
    assert not (tmp_path / "imported").exists()
