"""`calibrant serve --engine ray`: the same addresses and answers, with Ray Serve as front and scaler.

Every replica is a process with the models, the checks and the micro-batcher of `calibrant serve`; Ray's proxy takes the
connections, chooses a replica, and starts replicas on the machines of a cluster. What needs one process that sees all
traffic (labels, alarms, admin) stays with the server of our own.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from calibrant.config import build
from calibrant.errors import ConfigError, MissingExtra, ModelError
from calibrant.remote.ray_session import session
from calibrant.serve.access import Access
from calibrant.serve.config import ModelSpec, ServeConfig
from calibrant.serve.control import Control
from calibrant.serve.engine import huge_pages
from calibrant.serve.engine.providers import available_cores
from calibrant.serve.http.app import Application
from calibrant.serve.http.message import Request, Response
from calibrant.serve.inference import Inference
from calibrant.serve.limits import Limits
from calibrant.serve.models.model import Model
from calibrant.serve.models.repository import Repository
from calibrant.serve.processes.listener import probe
from calibrant.serve.protocol.errors import Refusal, TooLarge

log = logging.getLogger(__name__)

NAME = "calibrant"


class Replica:
    """One copy of the models; Ray calls it with Starlette's request."""

    def __init__(self, config: ServeConfig) -> None:
        self.config = config
        self.repository = Repository()
        self.inference = Inference(self.repository, config.limits, decoders=max(1, min(4, config.threads or 1)))
        self.app = Application(self.inference, Control(self.repository), Access(config.tokens()))
        for spec in config.models:
            self.repository.add(
                Model.load(
                    spec.path,
                    name=spec.name,
                    version=spec.version,
                    providers=config.providers,
                    threads=config.threads,
                    cap=config.batch_cap,
                    max_rows=config.limits.max_rows,
                    deliver=self.inference.deliver,
                )
            )
        if config.huge_pages:
            huge_pages.collapse()

    async def __call__(self, request: Any) -> Any:
        from starlette.responses import Response as Reply

        loop = self.inference.loop = asyncio.get_running_loop()
        answer: asyncio.Future[Response] = loop.create_future()
        own = await self._read(request)

        def respond(response: Response) -> None:
            if not answer.done():
                answer.set_result(response)

        if isinstance(own, Refusal):
            respond(Response.error(own))
        else:
            self.app(own, respond)
        try:
            got = await answer
        except asyncio.CancelledError:  # the caller went away
            if isinstance(own, Request):
                own.give_up()
            raise
        body = b"".join(bytes(part) for part in got.parts)
        headers = {name.decode(): value.decode() for name, value in got.headers}
        return Reply(body, got.status, headers, got.content_type.decode())

    async def _read(self, request: Any) -> Request | Refusal:
        limit, parts, size = self.config.limits.max_body, [], 0
        async for part in request.stream():
            size += len(part)
            if size > limit:
                return TooLarge(f"the body is larger than the {limit} bytes that are taken")
            parts.append(part)
        scope = request.scope
        target = scope.get("raw_path", scope["path"].encode())
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        headers = {name.lower(): value for name, value in scope["headers"]}
        body = memoryview(b"".join(parts))
        return Request(scope["method"].encode(), target, headers, body, received=time.monotonic())

    def check_health(self) -> None:
        """Ray replaces a replica whose check raises."""
        for model in self.repository.all():
            if not model.batcher.alive:
                raise RuntimeError(f"the batcher of {model.name} has ended")


def run(
    config: ServeConfig, replicas: int, *, announce: Callable[[str, list[str]], None], address: str | None = None
) -> None:
    """Serves until SIGTERM or SIGINT, on the cluster at an address or the one that `remote.ray_session` finds."""
    refuse_what_ray_does_not_do(config)
    command = "calibrant serve --engine ray"
    try:
        from ray import serve
    except ImportError:
        raise MissingExtra(command, "ray", "ray") from None
    if hasattr(signal, "SIGHUP"):  # which would end it, and not the replicas on a cluster that stays
        signal.signal(
            signal.SIGHUP, lambda *_: log.warning("SIGHUP: with --engine ray nothing is read again; start it anew")
        )
    config = _resolved(config, replicas)
    names = _names(config)
    stop = threading.Event()
    # One core for Ray's own actors: they hardly compute, but a replica is not started where none is left.
    with session(command, replicas * (config.threads or 1) + 1, address) as cluster:
        for number in (signal.SIGTERM, signal.SIGINT):  # here, since Ray sets its own when it starts
            signal.signal(number, lambda *_: stop.set())
        running = _running()
        if running is None:
            config = dataclasses.replace(config, port=probe(config.host, config.port))  # Ray wants it beforehand
        else:
            _refuse_another(running, config)
        try:
            serve.start(
                http_options={"host": config.host, "port": config.port}, logging_config={"enable_access_log": False}
            )
            _deploy(serve, _bound(serve, config, replicas))
            if not stop.is_set():
                announce(f"http://{config.host}:{config.port}", names)
            while not stop.wait(0.5):
                pass
        finally:
            with contextlib.suppress(Exception):
                if not cluster.own:
                    serve.delete(NAME)
                if cluster.own or (running is None and not serve.status().applications):
                    serve.shutdown()  # not where others have applications


def _running() -> dict[str, Any] | None:
    """What Ray Serve says of itself, where it runs on this cluster already: it has one address for all applications,
    and would take another and do nothing about it."""
    from ray.serve.context import _get_global_client

    client = _get_global_client(raise_if_no_controller_running=False)
    return None if client is None else dict(client.get_serve_details())


def _refuse_another(running: Mapping[str, Any], config: ServeConfig) -> None:
    """Another start would take the place of the first, with its models and without its token."""
    options, applications = running["http_options"], running["applications"]
    host, port = options["host"], options["port"]
    there = next((name for name, found in applications.items() if found.get("route_prefix") == "/"), None)
    there = NAME if NAME in applications else there
    if there is not None:
        end = f"import ray; from ray import serve; ray.init('auto'); serve.delete('{there}')"
        raise ConfigError(
            f'this cluster serves the application "{there}" already, at port {port}',
            where="--engine ray",
            fix=f'stop the command that started it, or, where that is gone, run python -c "{end}"; '
            "--ray-address local starts beside it",
        )
    if (host, port) != (config.host, config.port):
        raise ConfigError(
            f"Ray Serve listens at {host}:{port} on this cluster already, and nowhere else",
            where="--engine ray",
            fix=f"pass --host {host} --port {port}, or --ray-address local for a cluster of its own",
        )


@dataclass(frozen=True)
class Arguments:
    """Of an application in a configuration of Ray Serve."""

    models: tuple[str, ...]  # as on the command line of `calibrant serve`
    threads: int = 1  # of a replica, which asks Ray for as many CPUs
    batch_cap: int | None = None
    max_body: int = 64  # MiB


def application(arguments: Mapping[str, Any]) -> Any:
    """What a configuration of Ray Serve names: `import_path: calibrant.serve.processes.ray:application`.

    Its deployment is called "models". The token that callers need is read from CALIBRANT_TOKEN.
    """
    from ray import serve

    given = build(Arguments, arguments, where="args of the Ray Serve application")
    config = ServeConfig(
        [ModelSpec.parse(text) for text in given.models],
        threads=given.threads,
        batch_cap=given.batch_cap,
        token=os.environ.get("CALIBRANT_TOKEN"),
        limits=Limits(max_body=given.max_body << 20),
    )
    return _bound(serve, config, 1)


def _bound(serve: Any, config: ServeConfig, replicas: int) -> Any:
    deployment = serve.deployment(
        Replica,
        name="models",
        num_replicas=replicas,
        max_ongoing_requests=1024,
        graceful_shutdown_timeout_s=20,
        ray_actor_options={"num_cpus": config.threads or 1},
    )
    return deployment.bind(config)


def _deploy(serve: Any, application: Any) -> None:
    """Returns when the replicas answer."""
    try:
        serve.run(application, name=NAME, route_prefix="/")
    except RuntimeError as error:
        status = serve.status().applications.get(NAME)
        said = "" if status is None else " ".join(d.message for d in status.deployments.values()).strip()
        why = said.splitlines()[-1].strip() if said else str(error)
        raise ModelError(
            f"Ray could not start the replicas ({why})", where="--engine ray", fix="its logs say more: ray logs"
        ) from None


def refuse_what_ray_does_not_do(config: ServeConfig) -> None:
    default = ServeConfig(())
    options = {
        "grpc_port": "--grpc-port",
        "token_file": "--token-file",
        "admin": "--admin",
        "tls_cert": "--tls-cert",
        "access_log": "--access-log",
        "trace_share": "--trace-share",
        "monitor": "--monitor",
        "feedback_log": "--feedback-log",
        "baseline": "--baseline",
        "canaries": "--canary",
        "shadows": "--shadow",
        "grace_seconds": "--grace",
        "reload_seconds": "--reload",
        "ready_file": "--ready-file",
        "folders": "a folder of models",
        "remote": "a folder of object storage",
    }
    for name, option in options.items():
        if getattr(config, name) != getattr(default, name):
            raise ConfigError(
                "is not there with --engine ray", where=option, fix="leave it out, or use --workers without --engine"
            )


def _resolved(config: ServeConfig, replicas: int) -> ServeConfig:
    """With whole paths, since a replica runs elsewhere."""
    specs = [ModelSpec(spec.path.resolve(), spec.name, spec.version) for spec in config.models]
    threads = config.threads or max(1, available_cores() // replicas)
    return dataclasses.replace(config, models=specs, threads=threads)


def _names(config: ServeConfig) -> list[str]:
    """The names under which the files will be served; what cannot be loaded is said here, in one line."""
    from calibrant.serve.engine.session import Session

    names = []
    for spec in config.models:
        session = Session(spec.path, providers=config.providers, threads=1)
        names.append(spec.name or session.own_name)
    if len(set(zip(names, (s.version for s in config.models), strict=True))) < len(names):
        raise ConfigError(
            "two models have the same name and version",
            where="calibrant serve",
            fix=f"tell them apart: {names[0]}@2={config.models[-1].path}",
        )
    return sorted(set(names))
