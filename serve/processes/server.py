"""A server's life: load, listen, say so, serve, and on SIGTERM finish what is under way."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import logging
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant import atomic
from calibrant.errors import CalibrantError, ConfigError, did_you_mean
from calibrant.serve.access import Access
from calibrant.serve.body_memory import BODIES
from calibrant.serve.config import ServeConfig
from calibrant.serve.control import Control
from calibrant.serve.engine import heap, huge_pages
from calibrant.serve.engine.providers import available_cores, share_threads
from calibrant.serve.http.app import Application
from calibrant.serve.http.connections import Connections
from calibrant.serve.inference import Inference
from calibrant.serve.models.acceptance import Contract, check_successor, misfits, warn_of_changes
from calibrant.serve.models.model import Model
from calibrant.serve.models.reload import Lifecycle
from calibrant.serve.models.remote_folder import RemoteFolder
from calibrant.serve.models.repository import NEWEST, Repository
from calibrant.serve.processes.listener import listen, turn_away, welcome
from calibrant.serve.processes.other_workers import OtherWorkers
from calibrant.serve.processes.renewal import renew
from calibrant.serve.processes.workers import LEADER, Seat, forget_ready, ignore_hangup
from calibrant.serve.tls import Renewable

if TYPE_CHECKING:
    from calibrant.serve.grpc.server import Front
    from calibrant.serve.monitor.watching import Watching

log = logging.getLogger(__name__)

MANY = 4  # models; more of them share one pool of threads
LONGEST_MEASURE, ALL_MEASURES = 0.8, 24.0  # seconds for one model's batch curve, and for those of all at the start


class Server:
    """Loads the models of a configuration and serves them until told to stop."""

    def __init__(
        self, config: ServeConfig, seat: Seat | None = None, again: Callable[[], ServeConfig] | None = None
    ) -> None:
        """`seat`: where this process is one of several workers. `again`: what it would be told if it began now."""
        heap.share()
        self._again = again
        self.tls: list[Renewable] = []
        self.seat = seat
        self.config = config = config if seat is None else _of_worker(config, seat)
        self._cores = max(1, available_cores() // (1 if seat is None else seat.workers))
        self.repository = Repository()
        self._copies = tempfile.TemporaryDirectory(prefix="calibrant-models-") if config.remote else None
        remote = [RemoteFolder(a, Path(self._copies.name)) for a in config.remote] if self._copies else []
        self._shared_threads = bool(config.folders or config.remote) or len(config.models) > MANY
        self.lifecycle = Lifecycle(
            self.repository,
            self._load,
            folders=config.folders,
            remote=remote,
            explicit=config.model_control == "explicit",
            memory=None if config.model_memory is None else config.model_memory << 20,
            at_once=min(4, self._cores),
        )
        self.inference = Inference(self.repository, config.limits, decoders=min(4, self._cores))
        self.control = Control(self.repository, self.lifecycle, admin=config.admin)
        self.control.others = None if seat is None else OtherWorkers(seat)
        if config.canaries:
            from calibrant.serve.canaries import Canaries  # and the statistics that judge them

            rules = config.canary_rules if config.canary_auto else None
            kept = config.feedback_log or (None if seat is None else Path(seat.folder))
            self.control.canaries = Canaries(self.repository, rules, others=self.control.others, folder=kept)
        self.access = Access(config.tokens(), hosts=config.allowed_hosts, logged=config.access_log)
        self.app = Application(self.inference, self.control, self.access)
        self.app.tls = self.tls
        self.connections = self.app.connections = Connections(
            self.app, config.limits, gate=self.app.gate, trusted=config.trusted_proxies
        )
        if config.trace_share:
            from calibrant.serve.tracing import Traces

            self.app.traces = Traces.to_collector(config.trace_share)
        self._watching: Watching | None = None
        self._stop: asyncio.Event | None = None
        self._starting = False
        self._contracts: dict[tuple[str, str], Contract] = {}

    def load_models(self) -> None:
        """All of them; for whoever has no event loop yet."""
        asyncio.run(self.load_all())

    async def load_all(self) -> None:
        """While the port answers: alive at once, ready when all are there."""
        if self._shared_threads:
            share_threads(self.config.threads or self._cores)
        self._watch_traffic()
        self._starting = self.control.starting = True
        try:
            await self.lifecycle.start(self.config.models, self.config.load)
            self._refuse_misfits()
        finally:
            self._starting = False
        if self.config.huge_pages:
            await asyncio.to_thread(huge_pages.collapse)
        self._share_out()
        self.control.starting = False
        # What was allocated so far lives as long as the server: the collector need not look at it again.
        gc.collect()
        gc.freeze()

    def _watch_traffic(self) -> None:
        config = self.config
        if config.monitor or config.feedback_log is not None:
            from calibrant.serve.monitor.watching import Watching

            self._watching = Watching(config, leads=self._leads, follows=self._leads and self.seat is not None)
            thread = self._watching.thread
            self.control.monitors, self.control.flush = thread.monitors, thread.flush
            self.control.awaits, self.control.shipping = self._watching.awaits, thread.shipping
            self.control.restored = self._watching.histories.restored.is_set

    def _share_out(self) -> None:
        for option, shares in (("--canary", self.config.canaries), ("--shadow", self.config.shadows)):
            for share in shares:
                known = [f"{m.name}@{m.version}" for m in self.repository.all()]
                if option == "--canary" and share.version == NEWEST and share.name in self.repository.models:
                    continue
                if f"{share.name}@{share.version}" not in known:
                    raise ConfigError(
                        f'no model "{share.name}@{share.version}"',
                        where=option,
                        fix=did_you_mean(f"{share.name}@{share.version}", known),
                    )
        if self.control.canaries is not None:
            self.control.canaries.begin(self.config.canaries)
        for shadow in self.config.shadows:
            self.repository.shadows.setdefault(shadow.name, []).append((shadow.version, shadow.share))

    def _load(self, path: Path, name: str | None, version: str) -> Model:
        config = self.config
        model = Model.load(
            path,
            name=name,
            version=version,
            providers=config.providers,
            threads=config.threads,
            cap=config.batch_cap,
            max_rows=config.limits.max_rows,
            deliver=self.inference.deliver,
            soon=self.inference.soon if self._cores == 1 else None,
            shared_threads=self._shared_threads,
            seconds=min(LONGEST_MEASURE, ALL_MEASURES / max(1, self.repository.starting)),
        )
        self._accept(model)
        if config.huge_pages and not self._starting:
            huge_pages.collapse()
        if self._watching is not None:
            self._watching.watch(model)
        return model

    def _accept(self, model: Model) -> None:
        """Refuses what would take callers who rely on something else."""
        contract, before = Contract.of(model.session), self.repository.answering(model.name, model.version)
        if (model.name, model.version) not in self._contracts:
            warn_of_changes(model.session)
        if before in self._contracts and not self._starting and not self.config.accept_changes:
            try:
                check_successor(contract, self._contracts[before])
            except CalibrantError:
                model.batcher.close()
                raise
        self._contracts[model.name, model.version] = contract

    def _refuse_misfits(self) -> None:
        """Of a folder's versions, those that could not have come while it served: a restart lets nothing else in."""
        if not self.config.accept_changes:
            loaded = {(model.name, model.version) for model in self.repository.all()}
            of_folders = {k: c for k, c in self._contracts.items() if k in loaded and self.lifecycle.is_of_folder(k)}
            for key, error in misfits(of_folders):
                del self._contracts[key]
                self.lifecycle.refuse(key, error)

    @property
    def _leads(self) -> bool:
        """Whether this process watches the predictions."""
        return self.seat is None or self.seat.number == LEADER

    def listen(self) -> socket.socket:
        """Bound before the models are loaded, so that a port in use is said at once."""
        if self.seat is not None:
            listener = socket.socket(fileno=self.seat.listener)
            welcome(listener)  # the seat's last worker may have been told to stop
            listener.setblocking(False)
            return listener
        return listen(self.config.host, self.config.port)

    def run(self, *, announce: Callable[[str], None]) -> None:
        """Serves until SIGTERM or SIGINT; returns when the last answer is out."""
        ignore_hangup()
        if self.seat is None:
            forget_ready(self.config.ready_file)
        listener = self.listen()
        with contextlib.closing(listener):
            context = self.config.tls()
            self.tls += [] if context is None else [Renewable(context)]
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve(listener, announce))

    def told_now(self) -> ServeConfig:
        if self._again is None:
            return self.config
        return self._again() if self.seat is None else _of_worker(self._again(), self.seat)

    def _hang_up(self) -> None:
        """SIGHUP. What cannot be read leaves everything as it was."""
        try:
            renew(self)
        except (CalibrantError, OSError) as error:
            log.error("SIGHUP: nothing was changed: %s", error)

    async def _serve(self, listener: socket.socket, announce: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()
        self.inference.loop = loop
        self._stop = asyncio.Event()
        context = self.tls[0].context if self.tls else None
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(number, self._stop.set)
        with contextlib.suppress(NotImplementedError, AttributeError):
            loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        if self.seat is not None and self.seat.joins:
            await self.load_all()  # callers wait in the kernel's queue, which is better than to be told to come again
        grpc = await self._grpc()
        server = await loop.create_server(self.connections.connection, sock=listener, ssl=context, backlog=1024)
        host, port = listener.getsockname()[:2]
        address = f"{'https' if context else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
        try:
            if not (self.seat is not None and self.seat.joins):
                await self._load_or_stop()
            if not self._stop.is_set():
                await self._say_ready(host, port, address, announce)
        except BaseException:
            for each in (server, grpc):
                if each is not None:
                    each.close()
            raise
        tasks = [asyncio.create_task(self._sweep()), asyncio.create_task(self._reload())]
        if self.control.canaries is not None:
            tasks.append(asyncio.create_task(self.control.canaries.run()))
        try:
            await self._stop.wait()
            await self._drain([s for s in (server, grpc) if s is not None], [listener, *self._grpc_listeners])
        finally:
            for task in tasks:
                task.cancel()
            self.inference.close()
            if self._watching is not None:
                self._watching.thread.close()
            if self.app.traces is not None:
                self.app.traces.close()
            if self.seat is None:
                forget_ready(self.config.ready_file)

    async def _load_or_stop(self) -> None:
        """Until all models are there, one that must be cannot be loaded, or the server is told to stop."""
        assert self._stop is not None
        loading, stopping = asyncio.ensure_future(self.load_all()), asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([loading, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if loading.done():
            loading.result()
        else:
            loading.cancel()

    async def _say_ready(self, host: str, port: int, address: str, announce: Callable[[str], None]) -> None:
        if self.seat is not None:
            await self._meet_others(self.seat)
            return
        if self.config.ready_file is not None:
            ready = {"host": host, "port": port, "pid": os.getpid(), "url": address, "grpc_port": self.grpc_port}
            atomic.write_json(self.config.ready_file, ready)
        announce(address)

    async def _meet_others(self, seat: Seat) -> None:
        """Opens the socket for the other workers, tells the parent, and stops when the parent is gone."""
        own = seat.socket()
        own.unlink(missing_ok=True)  # of a worker that died
        inside = Connections(self.app.internal, dataclasses.replace(self.config.limits, request_seconds=120.0))
        self._door = await asyncio.get_running_loop().create_unix_server(inside.connection, str(own))
        assert self._stop is not None
        asyncio.get_running_loop().add_reader(seat.alive, self._stop.set)
        seat.is_ready(models=sorted(self.repository.models), grpc_port=self.grpc_port)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(0.25)
            for front in self._fronts:
                front.sweep()
            BODIES.sweep()

    async def _reload(self) -> None:
        while self.config.reload_seconds > 0:
            await asyncio.sleep(self.config.reload_seconds)
            try:
                await self.lifecycle.poll()
            except Exception:
                log.exception("looking for changed files failed; serving goes on")

    grpc_port: int | None = None
    grpc: Front | None = None
    _grpc_listeners: Sequence[socket.socket] = ()

    async def _grpc(self) -> asyncio.Server | None:
        """The gRPC front, where it is wanted."""
        if self.config.grpc_port is None:
            return None
        from calibrant.serve.grpc.server import Front
        from calibrant.serve.grpc.service import Service

        config = self.config
        service = Service(self.inference, self.control, self.access, self.app.grpc_calls)
        listener = listen(config.host, self.config.grpc_port, shared=self.seat is not None, option="--grpc-port")
        self._grpc_listeners, self.grpc_port = [listener], listener.getsockname()[1]
        self.grpc = self.app.grpc = Front(service, config.limits, self.connections.room, self.app.traces)
        certificate = config.tls()
        context = None
        if certificate is not None:
            self.tls.append(Renewable(certificate, ["h2"]))
            context = self.tls[-1].context
        loop = asyncio.get_running_loop()
        return await loop.create_server(self.grpc.connection, sock=listener, ssl=context, backlog=1024)

    @property
    def _fronts(self) -> list[Connections | Front]:
        return [self.connections, *([] if self.grpc is None else [self.grpc])]

    async def _drain(self, servers: list[asyncio.Server], listeners: list[socket.socket]) -> None:
        """Takes no new connections, answers what came, closes, and ends at the latest after `drain_seconds`."""
        log.info("stopping: %d request(s) under way", sum(front.busy for front in self._fronts))
        self.control.accepting = False
        await asyncio.sleep(self.config.grace_seconds)
        for listener in listeners:
            turn_away(listener)
        # Callers whose connection waits in the kernel's queue were accepted as far as they know.
        await asyncio.sleep(0.05)
        for _ in range(3):  # rounds of the loop: what came while this process was held up is accepted as well
            await asyncio.sleep(0)
        for server in servers:
            server.close()
        for front in self._fronts:
            front.drain()
        end = time.monotonic() + self.config.limits.drain_seconds
        while any(front.open for front in self._fronts) and time.monotonic() < end:
            await asyncio.sleep(0.02)
            for front in self._fronts:
                front.sweep()
            BODIES.sweep()
        left = [connection for front in self._fronts for connection in front.open]
        for connection in left:
            connection.abort()
        for model in self.repository.all():
            model.batcher.close(timeout=1.0)
        log.info("stopped%s", f"; {len(left)} connection(s) were cut" if left else "")


def _of_worker(config: ServeConfig, seat: Seat) -> ServeConfig:
    """A worker's part: its share of the cores, the port that was reserved for gRPC, and a log to hand predictions over
    where none is to be kept."""
    threads = config.threads or max(1, available_cores() // seat.workers)
    config = dataclasses.replace(config, threads=threads, grpc_port=seat.grpc_port)
    if config.monitor and config.feedback_log is None:
        watch = dataclasses.replace(config.watch, segment_bytes=16 << 20, keep_gib=0.25)
        config = dataclasses.replace(config, feedback_log=Path(seat.folder) / "log", watch=watch)
    return config


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # Windows
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
