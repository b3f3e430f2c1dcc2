"""Several server processes on one address: `calibrant serve --workers N`.

The parent loads no model. It holds one listening socket for each worker, all bound to the same port (SO_REUSEPORT: the
kernel spreads connections over them), starts the workers as processes of their own, and starts another where one dies;
connections that wait in its socket's queue meanwhile are taken by its successor, or go to the others where that cannot
start. SIGTERM or Ctrl-C drains all of them.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant import atomic
from calibrant.errors import ConfigError, ModelError
from calibrant.serve.config import ServeConfig
from calibrant.serve.processes.listener import bind, probe

log = logging.getLogger(__name__)

ENVIRONMENT = "CALIBRANT_SERVE_WORKER"
LEADER = 0  # the worker that watches the predictions of all and takes the labels
LONGEST_PAUSE = 30.0  # seconds before a worker that keeps dying is started again


@dataclass(frozen=True)
class Seat:
    """What a worker is given: its number, its socket, where the others are, and how to talk to the parent."""

    number: int
    workers: int
    listener: int  # file descriptors
    report: int  # a line of JSON when the worker is ready
    alive: int  # at its end when the parent is gone
    folder: str  # holds a socket of each worker, for the others only
    grpc_port: int | None
    successor: bool = False  # of a worker that died: connections wait for it, and find its models loaded

    @property
    def joins(self) -> bool:
        """Others answer already, so it takes no connection before its models are loaded. The leader does: it is alive
        at once, and ready when it is."""
        return self.successor or self.number != LEADER

    @classmethod
    def from_environment(cls) -> Seat | None:
        """Where this process is a worker."""
        text = os.environ.pop(ENVIRONMENT, None)
        return None if text is None else cls(**json.loads(text))

    def socket(self, number: int | None = None) -> Path:
        return Path(self.folder) / f"{self.number if number is None else number}.sock"

    def is_ready(self, **facts: Any) -> None:
        line = json.dumps({"number": self.number, "pid": os.getpid(), **facts}) + "\n"
        os.write(self.report, line.encode())


def ignore_hangup() -> None:
    """Until there is something to read again, SIGHUP must not end the process either."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def forget_ready(file: Path | None) -> None:
    """Also at the start: one that was killed has left its own."""
    if file is not None:
        file.unlink(missing_ok=True)


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    started: float
    ready: bool = False


class Supervisor:
    """The parent of the workers."""

    def __init__(self, config: ServeConfig, workers: int) -> None:
        if not hasattr(socket, "SO_REUSEPORT") or os.name != "posix":
            raise ConfigError(
                "needs SO_REUSEPORT, which this system does not have",
                where="--workers",
                fix="start several servers on ports of their own behind a proxy",
            )
        self.config, self.count = config, workers
        self._seated: dict[int, _Worker] = {}
        self._due: dict[int, float] = {}  # when a seat that fell empty is taken again
        self._deaths: dict[int, int] = {}  # in a row, without having been ready for a while
        self._silent: set[int] = set()  # seats whose socket does not listen
        self._facts: dict[str, Any] = {}
        self._pids: dict[int, int] = {}
        self._stopping = False
        self._unread = b""

    def run(self, *, announce: Callable[[dict[str, Any]], None]) -> int:
        """Until SIGTERM or SIGINT; the exit code. `announce` gets url, models and grpc_port when all are ready."""
        forget_ready(self.config.ready_file)
        with ExitStack() as stack:
            self._folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="calibrant-workers-"))
            self._listeners = self._listen(stack)
            self._grpc_port = self._reserve_grpc(stack)
            self._report, self._report_end = os.pipe()
            self._alive, alive_end = os.pipe()
            for end in (self._report, self._report_end, self._alive, alive_end):
                stack.callback(os.close, end)
            os.set_blocking(self._report, False)
            if hasattr(signal, "SIGHUP"):
                signal.signal(signal.SIGHUP, self._pass_on)
            for number in (signal.SIGTERM, signal.SIGINT):
                stack.callback(signal.signal, number, signal.signal(number, self._stop))
            try:
                code = self._start()
                if code is None:
                    self._announce(announce)
                    while not self._stopping:
                        self._look()
                        self._fill()
                return code or 0
            finally:
                self._end()
                forget_ready(self.config.ready_file)

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _pass_on(self, number: int, _: object) -> None:
        """SIGHUP is for the workers, who read certificates, tokens and settings again."""
        for worker in self._seated.values():
            if worker.ready and worker.process.poll() is None:
                worker.process.send_signal(number)

    # ---- sockets

    def _listen(self, stack: ExitStack) -> list[socket.socket]:
        host, port = self.config.host, self.config.port
        if port:  # would be shared with whoever else of ours asks for it: is it taken?
            probe(host, port)
        listeners: list[socket.socket] = []
        for _ in range(self.count):
            listeners.append(stack.enter_context(bind(host, port, shared=True)))
            port = listeners[0].getsockname()[1]
        return listeners

    def _reserve_grpc(self, stack: ExitStack) -> int | None:
        """A port that is kept from others by a socket that never listens; gRPC binds its own in every worker."""
        if self.config.grpc_port is None:
            return None
        reserved = stack.enter_context(bind(self.config.host, self.config.grpc_port, shared=True, option="--grpc-port"))
        return int(reserved.getsockname()[1])

    # ---- the workers' lives

    def _start(self) -> int | None:
        """All of them; the first alone, so that what cannot be served is said once. An exit code where it failed."""
        for numbers in ([LEADER], [n for n in range(self.count) if n != LEADER]):
            for number in numbers:
                self._seat(number)
            while not all(self._seated[n].ready for n in numbers):
                self._look(replace=False)
                for number in numbers:
                    code = self._seated[number].process.poll()
                    if code is not None and not self._stopping:
                        if code > 0:
                            return code  # it has said why
                        raise ModelError(f"worker {number} was ended by signal {-code} before it was ready")
                if self._stopping:
                    return 0
        return None

    def _seat(self, number: int, *, successor: bool = False) -> None:
        listener = self._listeners[number]
        if (successor or number == LEADER) and number not in self._silent:  # the others listen once they are loaded
            listener.listen(1024)
        ends = (listener.fileno(), self._report_end, self._alive)
        seat = Seat(number, self.count, *ends, self._folder, self._grpc_port, successor)
        process = subprocess.Popen(
            [sys.executable, "-m", "calibrant", *sys.argv[1:]],
            stdin=subprocess.DEVNULL,
            env={**os.environ, ENVIRONMENT: json.dumps(seat.__dict__)},
            pass_fds=(seat.listener, seat.report, seat.alive),
        )
        self._seated[number] = _Worker(process, time.monotonic())
        self._pids[number] = process.pid

    def _look(self, *, replace: bool = True) -> None:
        """Waits a moment for news: workers that are ready, workers that have died."""
        readable, _, _ = select.select([self._report], [], [], 0.1)
        if readable:
            *lines, self._unread = (self._unread + os.read(self._report, 65536)).split(b"\n")
            for line in lines:
                facts = json.loads(line)
                worker = self._seated.get(facts["number"])
                if worker is not None and worker.process.pid == facts["pid"]:
                    worker.ready, self._facts = True, facts
                    self._silent.discard(facts["number"])
        for number, worker in list(self._seated.items()) if replace else ():
            code = worker.process.poll()
            if code is not None and not self._stopping:
                del self._seated[number]
                self._mourn(number, worker, code)

    def _mourn(self, number: int, worker: _Worker, code: int) -> None:
        lasted = time.monotonic() - worker.started
        self._deaths[number] = self._deaths.get(number, 0) + 1 if lasted < 60 else 1
        pause = min(LONGEST_PAUSE, 0.1 * 2 ** (self._deaths[number] - 1))
        self._due[number] = time.monotonic() + pause
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        log.error("worker %d (process %d) %s; another takes its place", number, worker.process.pid, how)
        if code > 0 and not worker.ready:  # it has said why, and so will the next
            self._send_elsewhere(number)

    def _send_elsewhere(self, number: int) -> None:
        """Who waits at the seat of a worker that cannot start would wait for ever: until one is ready, there is a
        socket that does not listen, and the kernel has the others only to choose from."""
        old = self._listeners[number]
        self._listeners[number] = bind(*old.getsockname()[:2], shared=True)
        old.close()
        self._silent.add(number)
        serving = sum(each.ready for each in self._seated.values())
        log.error("worker %d cannot start: its callers go to the others, of which %d serve", number, serving)

    def _fill(self) -> None:
        for number in [n for n, due in self._due.items() if due <= time.monotonic()]:
            del self._due[number]
            self._seat(number, successor=True)
            self._write_ready()

    def _end(self) -> None:
        """SIGTERM to all, and patience for their drain."""
        for listener in self._listeners:  # held by the workers alone, so that theirs is the last word to callers
            listener.close()
        for worker in self._seated.values():
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + self.config.grace_seconds + self.config.limits.drain_seconds + 10
        for worker in self._seated.values():
            try:
                worker.process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()

    # ---- what is told

    def _announce(self, announce: Callable[[dict[str, Any]], None]) -> None:
        self._write_ready()
        announce({**self._facts, "url": self._url})

    @property
    def _url(self) -> str:
        host, port = self._listeners[0].getsockname()[:2]
        scheme = "https" if self.config.tls_cert is not None else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def _write_ready(self) -> None:
        if self.config.ready_file is not None:
            host, port = self._listeners[0].getsockname()[:2]
            atomic.write_json(
                self.config.ready_file,
                {
                    "host": host,
                    "port": port,
                    "pid": os.getpid(),
                    "url": self._url,
                    "grpc_port": self._grpc_port,
                    "workers": [self._pids[n] for n in sorted(self._pids)],
                },
            )
