"""A server in a process of its own, for tests, the demo and the dashboard."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrant.errors import ModelError


@dataclass(frozen=True)
class Running:
    """Where a background server listens. `str()` of it is the base URL."""

    url: str
    host: str
    port: int
    pid: int
    log: Path
    grpc_port: int | None = None

    def __str__(self) -> str:
        return self.url


@contextlib.contextmanager
def running(
    *models: str | Path, arguments: Sequence[str] = (), python: str | None = None, timeout: float = 60.0
) -> Iterator[Running]:
    """`calibrant serve MODELS --port 0 ARGUMENTS` until the block ends; then SIGTERM, and the server drains.

    One process, unless the arguments say otherwise.
    """
    if not {"--workers", "--config"} & set(arguments):
        arguments = [*arguments, "--workers", "1"]
    with tempfile.TemporaryDirectory(prefix="calibrant-serve-") as folder:
        ready, log = Path(folder) / "ready.json", Path(folder) / "server.log"
        command = [
            python or sys.executable,
            "-m",
            "calibrant",
            "serve",
            *map(str, models),
            "--port",
            "0",
            "--ready-file",
            str(ready),
            *arguments,
        ]
        with open(log, "wb") as stream:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
        try:
            yield _await_ready(process, ready, log, timeout)
        finally:
            stop(process)


def _await_ready(process: subprocess.Popen[bytes], ready: Path, log: Path, timeout: float) -> Running:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if ready.exists():
            block = json.loads(ready.read_text())
            return Running(block["url"], block["host"], block["port"], block["pid"], log, block.get("grpc_port"))
        if process.poll() is not None:
            said = log.read_text(errors="replace").strip().splitlines()
            raise ModelError(f"the server ended with code {process.returncode}: {said[-1] if said else 'no message'}")
        time.sleep(0.02)
    raise ModelError(f"the server was not ready after {timeout:g} s", fix="look at its log with --debug")


def stop(process: subprocess.Popen[bytes], *, patience: float = 30.0) -> int:
    """Asks the server to drain and waits; kills it only when that takes too long."""
    if process.poll() is None:
        if os.name == "posix":
            process.send_signal(signal.SIGTERM)
        else:
            process.terminate()
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()
