"""Measured batch curves of this machine, kept between starts: a small file for each in the user's cache.

A curve is known by the file's content, the device, the threads and the versions that decide how fast it runs. What
cannot be read or written is as if there were none; a server never fails for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import time
from pathlib import Path

from calibrant.atomic import write_json
from calibrant.serve.engine.batch_curve import BatchCurve, BatchPoint
from calibrant.serve.engine.session import Session

MOST = 1000  # curves; the oldest go
MOST_DAYS = 7  # then it is measured again: a machine may have been busy, or has become another


def store() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "calibrant" / "batch-curves"


def key_of(session: Session, sha256: str) -> str:
    from calibrant.runtime import runtime

    device = f"{session.providers[0]} {session.threads}"
    if session.providers[0] != "CPUExecutionProvider":
        device += f" {gpus()}"
    return f"{sha256} {device} {runtime().__version__} {platform.machine()} {cpu_name()} {os.cpu_count()}"


def read(key: str) -> BatchCurve | None:
    try:
        entry = json.loads(_file(key).read_text())
        if entry["key"] != key or not 0 <= time.time() - float(entry["time"]) <= MOST_DAYS * 86400:
            return None
        return BatchCurve(tuple(BatchPoint(int(r), float(s)) for r, s in entry["points"]), bool(entry["whole"]))
    except (OSError, KeyError, TypeError, ValueError):
        return None


def write(key: str, curve: BatchCurve) -> None:
    points = [[p.rows, p.seconds] for p in curve.points]
    with contextlib.suppress(OSError):
        store().mkdir(parents=True, exist_ok=True)
        write_json(_file(key), {"key": key, "time": int(time.time()), "points": points, "whole": curve.whole})
        there = list(store().glob("*.json"))
        if len(there) > MOST:
            for old in sorted(there, key=lambda file: file.stat().st_mtime_ns)[: len(there) - MOST]:
                old.unlink(missing_ok=True)


def _file(key: str) -> Path:
    return store() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def gpus(root: Path = Path("/proc/driver/nvidia/gpus")) -> str:
    """The names of NVIDIA's, where its driver tells: a curve of one is none of another's."""
    names = []
    for file in sorted(root.glob("*/information")):
        with contextlib.suppress(OSError):
            lines = file.read_text().splitlines()
            names += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    return ", ".join(names)


def cpu_name() -> str:
    """The processor's name, where the system tells."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return platform.processor()
