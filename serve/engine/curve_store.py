"""Measured batch curves of this machine, kept between starts: a small JSON file in the user's cache.

A curve is known by the file's content, the device, the threads and the versions that decide how fast it runs. What
cannot be read or written is as if there were none; a server never fails for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
from pathlib import Path
from typing import Any

from calibrant.atomic import write_json
from calibrant.serve.engine.batch_curve import BatchCurve, BatchPoint
from calibrant.serve.engine.session import Session

_WRITING = threading.Lock()
MOST = 1000  # curves; the oldest go
MOST_DAYS = 7  # then it is measured again: a machine may have been busy, or has become another


def store_file() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "calibrant" / "batch_curves.json"


def key_of(session: Session, sha256: str) -> str:
    from calibrant.runtime import runtime

    device = f"{session.providers[0]} {session.threads}"
    if session.providers[0] != "CPUExecutionProvider":
        device += f" {gpus()}"
    return f"{sha256} {device} {runtime().__version__} {platform.machine()} {cpu_name()} {os.cpu_count()}"


def read(key: str) -> BatchCurve | None:
    try:
        entry = _entries()[key]
        if not 0 <= time.time() - float(entry["time"]) <= MOST_DAYS * 86400:
            return None
        return BatchCurve(tuple(BatchPoint(int(r), float(s)) for r, s in entry["points"]), bool(entry["whole"]))
    except (KeyError, TypeError, ValueError):
        return None


def write(key: str, curve: BatchCurve) -> None:
    points = [[p.rows, p.seconds] for p in curve.points]
    with _WRITING, contextlib.suppress(OSError):
        entries = _entries()
        entries.pop(key, None)
        entries[key] = {"time": int(time.time()), "points": points, "whole": curve.whole}
        store_file().parent.mkdir(parents=True, exist_ok=True)
        write_json(store_file(), dict(list(entries.items())[-MOST:]))


def _entries() -> dict[str, Any]:
    try:
        found = json.loads(store_file().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


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
