"""Commands that run beside the dashboard: started from a page, followed from any tab, cancelled with all they started.

A job is a process group of its own and a small JSON file below RUNS/.calibrant-jobs, so it survives a reload, a closed
tab and the end of the dashboard itself: the next start finds it again by its process number and the time that process
began (numbers are used again, times are not).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import calibrant
from calibrant.atomic import write_json
from calibrant.errors import ConfigError

FOLDER = ".calibrant-jobs"
MOST_RUNNING = 2
_LAST_BYTES = 4096
_handles: dict[Path, subprocess.Popen[bytes]] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class Job:
    """`done_when`: a file that is there when the command has done its work, or nothing: then it has when its output is
    JSON. The exit code is not known for a job that an earlier dashboard started."""

    id: str
    label: str
    command: tuple[str, ...]
    pid: int
    born: str  # when the process began, as the system counts
    started: float
    done_when: str
    about: Mapping[str, Any]  # what the page that started it wants to know again
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / f"{self.id}.log"

    @property
    def out(self) -> Path:
        return self.folder / f"{self.id}.out"

    @property
    def arguments(self) -> tuple[str, ...]:
        """Of `calibrant`, without the interpreter."""
        return self.command[len(command_line(())) :]

    def result(self) -> Any:
        """What the command printed, where that is one JSON value; else None."""
        try:
            return json.loads(self.out.read_bytes())
        except (OSError, ValueError):
            return None


@dataclass(frozen=True)
class State:
    job: Job
    running: bool
    succeeded: bool
    seconds: float
    last_line: str  # of its progress and errors; of its answer where it told none
    step: str  # the last line of its answer, such as "[2/8] Training"


def start(
    root: Path,
    label: str,
    arguments: Sequence[str],
    *,
    done_when: Path | None = None,
    about: Mapping[str, Any] | None = None,
) -> Job:
    """Starts `calibrant ARGUMENTS` in the background."""
    folder = root / FOLDER
    folder.mkdir(exist_ok=True)
    with _lock:
        if sum(s.running for s in states(root)) >= MOST_RUNNING:
            raise ConfigError(f"{MOST_RUNNING} jobs are running already", fix="wait for one, or cancel it")
        id_ = f"{time.time_ns():x}"
        command = command_line(arguments)
        with open(folder / f"{id_}.log", "wb") as log, open(folder / f"{id_}.out", "wb") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
                cwd=root,
                env=environment(),
            )
        file = folder / f"{id_}.json"
        _handles[file] = process
        job = Job(
            id_,
            label,
            command,
            process.pid,
            _born(process.pid) or "",
            time.time(),
            str(done_when or ""),
            dict(about or {}),
            folder,
        )
        write_json(file, {k: v for k, v in asdict(job).items() if k != "folder"})
        return job


def command_line(arguments: Sequence[str]) -> tuple[str, ...]:
    """`calibrant ARGUMENTS` in this interpreter. -P: a numpy.py in the folder of the runs must not be imported."""
    return (sys.executable, "-P", "-m", "calibrant", *arguments)


def environment() -> dict[str, str]:
    """Ours; in a checkout that is not installed, with the place where this package was found."""
    found = {**os.environ, "PYTHONUNBUFFERED": "1", "CALIBRANT_PROGRESS": "lines"}
    home = Path(calibrant.__file__).resolve().parent.parent
    if (home / "pyproject.toml").is_file():
        found["PYTHONPATH"] = os.pathsep.join([str(home), *filter(None, [os.environ.get("PYTHONPATH")])])
    return found


def states(root: Path) -> list[State]:
    """All jobs below the folder, the newest first."""
    folder = root / FOLDER
    found = []
    for file in sorted(folder.glob("*.json"), reverse=True) if folder.is_dir() else []:
        job = _read(file)
        if job is not None:
            found.append(_state(job, file))
    return found


def cancel(root: Path, id_: str, *, patience: float = 5.0) -> bool:
    """Ends the job and everything that it started; True if it was running."""
    state = next((s for s in states(root) if s.job.id == id_), None)
    if state is None or not state.running:
        return False
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(state.job.pid, sign)
        except ProcessLookupError:
            break
        end = time.monotonic() + patience
        while time.monotonic() < end and _runs(state.job, _file(state.job)):
            time.sleep(0.05)
        if not _runs(state.job, _file(state.job)):
            break
    return True


def forget(root: Path, id_: str) -> None:
    """Removes the record of a job that has ended."""
    state = next((s for s in states(root) if s.job.id == id_), None)
    if state is not None and not state.running:
        _file(state.job).unlink(missing_ok=True)
        state.job.log.unlink(missing_ok=True)
        state.job.out.unlink(missing_ok=True)


def _file(job: Job) -> Path:
    return job.folder / f"{job.id}.json"


def _read(file: Path) -> Job | None:
    try:
        block = json.loads(file.read_bytes())
        return Job(
            str(block["id"]),
            str(block["label"]),
            tuple(block["command"]),
            int(block["pid"]),
            str(block["born"]),
            float(block["started"]),
            str(block["done_when"]),
            dict(block["about"]),
            file.parent,
        )
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _state(job: Job, file: Path) -> State:
    running = _runs(job, file)
    last = max((f.stat().st_mtime for f in (job.log, job.out) if f.exists()), default=job.started)
    end = time.time() if running else max(last, job.started)
    step = _last_line(job.out)
    return State(job, running, not running and _done(job), end - job.started, _last_line(job.log) or step, step)


def _done(job: Job) -> bool:
    if not job.done_when:
        return job.result() is not None
    try:
        return Path(job.done_when).stat().st_mtime >= job.started - 1
    except OSError:
        return False


def _runs(job: Job, file: Path) -> bool:
    handle = _handles.get(file)
    if handle is not None:
        return handle.poll() is None  # and no zombie is left
    return bool(job.born) and _born(job.pid) == job.born


def _born(pid: int) -> str | None:
    """When the process began; None where there is none, or only the remains of one."""
    try:
        # The name, in brackets, may hold anything; after it come state (1st) and start time (20th).
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except (OSError, IndexError):
        return None
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def _last_line(log: Path) -> str:
    try:
        with open(log, "rb") as stream:
            stream.seek(max(0, log.stat().st_size - _LAST_BYTES))
            lines = stream.read().decode(errors="replace").replace("\r", "\n").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
