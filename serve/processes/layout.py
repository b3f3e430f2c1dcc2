"""How many processes and threads a server takes where nobody says.

A process for each core, of one thread: on two cores that answered 2.0, 1.3 and 1.6 times what one process with two
threads did, with networks of about 0.2, 6 and 15 ms a row (bench/serve_layouts.py, a busy machine): a small run is
hardly made faster by a second thread, and each process reads its own requests. Above eight cores the processes stay
eight and get threads instead, which nothing here has measured: `calibrant tune` does.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from calibrant.runtime import runtime
from calibrant.serve.config import ServeConfig
from calibrant.serve.engine.providers import available_cores, choose
from calibrant.serve.models.folder import models_in

MOST = 8  # processes
OWN_BYTES, PER_MODEL = 250 << 20, 3  # of a process: libraries, and times the files for weights and what runs take
SHARE = 0.5  # of the memory that is free
FEW = 4  # models; more of them share one pool of threads in one process


@dataclass(frozen=True)
class Layout:
    workers: int
    threads: int  # of each

    def __str__(self) -> str:
        return f"{self.workers} x {self.threads}"


def chosen(config: ServeConfig, *, cores: int | None = None, memory: int | None = None) -> tuple[Layout, str]:
    """The layout, and why. Whoever says the threads gets the one process that has them."""
    cores = available_cores() if cores is None else cores
    if config.threads is not None:
        return Layout(1, config.threads), "--threads says so"
    if not hasattr(socket, "SO_REUSEPORT") or os.name != "posix":
        return Layout(1, cores), "this system shares no port"
    provider = choose(config.providers, runtime().get_available_providers())[0][0]
    if provider != "CPUExecutionProvider":
        return Layout(1, cores), f"{provider} is shared badly"
    files = [spec.path for spec in config.models]
    for folder in config.folders:
        files += models_in(folder).values()
    if len(files) > FEW:
        return Layout(1, cores), f"{len(files)} models share its threads"
    memory = free_memory() if memory is None else memory
    each = OWN_BYTES + PER_MODEL * sum(path.stat().st_size for path in files if path.is_file())
    fit = MOST if memory is None else int(SHARE * memory / each)
    workers = max(1, min(cores, MOST, fit))
    why = f"{cores} cores"
    if fit < min(cores, MOST):
        why += f", and {(memory or 0) / 2**30:.1f} GiB of memory"
    return Layout(workers, max(1, cores // workers)), why


def free_memory(root: Path = Path("/")) -> int | None:
    """Bytes that are free on the machine, or that the control group may have if that is less."""
    found = []
    with suppress(OSError, ValueError, StopIteration):
        lines = (root / "proc/meminfo").read_text().splitlines()
        found.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]))
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # "max" is no number
            found.append(int((root / "sys/fs/cgroup" / limit).read_text()))
    return min(found, default=None)
