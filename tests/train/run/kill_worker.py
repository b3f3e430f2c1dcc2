"""Trains in child processes that are killed with -9 at random moments, until one reaches the end. A script, not a test.

usage: kill_worker.py CONFIG.json SEED KILLS; prints JSON {"kills": n, "inside_a_write": n, "starts": n}
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from calibrant.train.config import train_config
from calibrant.train.engine import fit
from calibrant.train.run.folder import CHECKPOINT_FILE
from calibrant.train.run.resume import resumed_config


def child(table: dict[str, object], workers: int) -> None:
    torch.set_num_threads(1)
    out = Path(str(table["out"]))
    if (out / CHECKPOINT_FILE).is_file():
        fit(resumed_config(out, [f"data.workers={workers}"]), resume=True)
    else:
        fit(train_config(table, [f"data.workers={workers}"]), overwrite=True)


def main() -> None:
    table = json.loads(Path(sys.argv[1]).read_text())
    rng, wanted = random.Random(int(sys.argv[2])), int(sys.argv[3])
    out = Path(table["out"])
    kills = inside = starts = 0
    while True:
        starts += 1
        pid = os.fork()
        if pid == 0:
            os.setsid()  # its loader workers die with it
            code = 1
            try:
                child(table, rng.randrange(3))
                code = 0
            finally:
                os._exit(code)
        rng.random()
        if kills < wanted:
            _wait(pid, out, rng, inside_a_write=kills % 3 == 0)
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                kills += 1
                inside += bool(list(out.glob(".checkpoint.*.tmp.*")))
                continue
            sys.exit("a child ended before it was killed: train longer")
        _, status = os.waitpid(pid, 0)
        if status:
            sys.exit("a child failed")
        break
    sys.stdout.write(json.dumps({"kills": kills, "inside_a_write": inside, "starts": starts}))


def _wait(pid: int, out: Path, rng: random.Random, *, inside_a_write: bool) -> None:
    """Until a random moment, or on until a checkpoint is being written; never beyond the child's end."""
    first = _written(out)
    while _written(out) == first:  # let it get somewhere: this start must make progress
        if _ended(pid):
            return
        time.sleep(0.002)
    time.sleep(rng.uniform(0, 0.15))
    while inside_a_write and not list(out.glob(".checkpoint.*.tmp.*")):
        if _ended(pid):
            return


def _written(out: Path) -> int:
    file = out / CHECKPOINT_FILE
    return file.stat().st_mtime_ns if file.is_file() else 0


def _ended(pid: int) -> bool:
    info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return info is not None


if __name__ == "__main__":
    main()
