"""The addresses of the server and what each of them answers."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from calibrant._version import __version__
from calibrant.errors import did_you_mean
from calibrant.serve.http import openapi, picture_api
from calibrant.serve.http.connections import Front
from calibrant.serve.http.exposition import expose
from calibrant.serve.http.limits import Limits, decompress
from calibrant.serve.http.prometheus import Exposition
from calibrant.serve.inference import Inference, Respond
from calibrant.serve.models.batcher import Job
from calibrant.serve.models.reload import Lifecycle
from calibrant.serve.models.repository import Model, Repository
from calibrant.serve.monitor.labels import label_all, read_labels
from calibrant.serve.monitor.monitor import Monitor
from calibrant.serve.processes.other_workers import FLUSH, Peers, merged_metrics, merged_statistics
from calibrant.serve.protocol.errors import Forbidden, NotFound, Refusal, Unauthorized, WrongMethod
from calibrant.serve.protocol.message import Request, Response
from calibrant.serve.protocol.request import json_object

log = logging.getLogger(__name__)
access = logging.getLogger("calibrant.serve.access")

Handler = Callable[[Request, Respond, dict[str, str]], None]
Route = tuple[Handler, dict[str, str], tuple[bytes, ...]]
EXTENSIONS = ["binary_tensor_data", "classification", "model_configuration", "model_repository", "statistics"]
MOST_FEEDBACK = 16 << 20  # bytes of labels once decompressed
GET, POST = (b"GET",), (b"POST",)


@dataclass(frozen=True)
class Options:
    token: str | None = None
    admin: bool = False  # load and unload over the network
    access_log: bool = False
    decoders: int = 2  # threads that decode pictures


class Application:
    """Finds the handler of a request. Everything here runs on the event loop's thread."""

    def __init__(
        self, repository: Repository, limits: Limits, options: Options | None = None, lifecycle: Lifecycle | None = None
    ) -> None:
        self.repository, self.limits = repository, limits
        self.options = options or Options()
        self.lifecycle = lifecycle
        self.inference = Inference(repository, limits, decoders=self.options.decoders)
        self.front: Front | None = None
        self.monitors: Sequence[Monitor] = ()  # all that the server has, of retired files too
        self.flush: Callable[[], None] = _nothing  # of the monitors
        self.peers: Peers | None = None  # where this process is one of several workers
        self.ready = True
        self.loop: asyncio.AbstractEventLoop | None = None
        self.started = time.time()
        self.statuses: dict[int, int] = {}
        self.grpc_calls: dict[tuple[str, str], int] = {}  # by method and code
        self._routes: dict[bytes, Route] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def deliver(self, jobs: list[Job]) -> None:
        """From the batcher's thread: one wake-up of the loop for a whole batch."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(_call_back, jobs)

    def soon(self, callback: Callable[[], None]) -> None:
        """From the loop's thread: after the requests that it is reading now."""
        if self.loop is not None:
            self.loop.call_soon(callback)

    def close(self) -> None:
        self.inference.close()

    def __call__(self, request: Request, respond: Respond) -> None:
        def counted(response: Response) -> None:
            self.statuses[response.status] = self.statuses.get(response.status, 0) + 1
            respond(response)
            if self.options.access_log:
                self._log_access(request, response)

        try:
            handler, names, methods = self._route(request.target.partition(b"?")[0])
            if request.method not in methods and not (request.method == b"HEAD" and b"GET" in methods):
                allow = b", ".join(methods)
                response = Response.error(WrongMethod(f"use {allow.decode()} here, not {request.method.decode()}"))
                response.headers.append((b"allow", allow))
                counted(response)
                return
            if self.options.token is not None and handler not in (self._live, self._ready) and not request.internal:
                self._authorise(request)
            handler(request, counted, names)
        except Exception as error:
            refusal = Refusal.of(error)
            if refusal is not error and refusal.status == 500:
                log.error("a request failed", exc_info=error)
            counted(self._error(refusal))

    @staticmethod
    def _error(refusal: Refusal) -> Response:
        response = Response.error(refusal)
        if refusal.status == 401:
            response.headers.append((b"www-authenticate", b'Bearer realm="calibrant"'))
        return response

    def internal(self, request: Request, respond: Respond) -> None:
        """A request of a fellow worker, which came by a socket that only this user can open."""
        request.internal = True
        self(request, respond)

    def _log_access(self, request: Request, response: Response) -> None:
        access.info(json.dumps({
            "peer": request.peer, "method": request.method.decode(), "path": request.target.decode("latin-1"),
            "status": response.status, "bytes": sum(map(len, response.parts)),
            "ms": round(1e3 * (time.monotonic() - request.received), 3),
        }))  # fmt: skip

    def _authorise(self, request: Request) -> None:
        if not bears(request.headers.get(b"authorization", b""), self.options.token or ""):
            raise Unauthorized("a token is needed: send the header Authorization: Bearer TOKEN")

    # ---- routing

    def _route(self, path: bytes) -> Route:
        found = self._routes.get(path)
        if found is None:
            found = self._find_route(path)
            if len(self._routes) < 1024:
                self._routes[path] = found
        return found

    def _find_route(self, path: bytes) -> Route:
        if path[:7].lower() == b"http://" or path[:8].lower() == b"https://":  # the whole address
            path = b"/" + path.split(b"://", 1)[1].partition(b"/")[2]
        parts = [unquote(p) for p in path.decode("ascii", "replace").strip("/").split("/")]
        match parts:
            case ["v2", "models", name, *rest] if parts != ["v2", "models", "stats"]:
                names = {"name": name}
                if rest[:1] == ["versions"] and len(rest) >= 2:
                    names["version"], rest = rest[1], rest[2:]
                handler, methods = self._model_route(rest)
                return handler, names, methods
            case ["v2", "repository", "models", name, "load" | "unload" as verb]:
                return self._load if verb == "load" else self._unload, {"name": name}, POST
        fixed: dict[str, tuple[Handler, tuple[bytes, ...]]] = {
            "": (self._page, GET), "predict": (self.inference.predict, POST), "v2": (self._server_metadata, GET),
            "v2/health/live": (self._live, GET), "v2/health/ready": (self._ready, GET),
            "v2/models/stats": (self._statistics, GET), "v2/repository/index": (self._index, POST),
            "metrics": (self._metrics, GET), "openapi.json": (self._openapi, GET),
            "docs": (self._docs, GET),
        }  # fmt: skip
        if self.peers is not None and parts == FLUSH.strip("/").split("/"):
            return self._flush, {}, POST
        found = fixed.get("/".join(parts))
        if found is None:
            shown = path[:100].decode("ascii", "replace")
            known = [*fixed, "v2/models/NAME/infer"]
            raise NotFound(f'nothing is served at "{shown}"; {did_you_mean("/".join(parts)[:100], known[1:])}')
        return found[0], {}, found[1]

    def _model_route(self, rest: list[str]) -> tuple[Handler, tuple[bytes, ...]]:
        handlers: dict[str, tuple[Handler, tuple[bytes, ...]]] = {
            "": (self._model_metadata, GET), "ready": (self._model_ready, GET), "infer": (self.inference.infer, POST),
            "config": (self._config, GET), "stats": (self._statistics, GET), "predict": (self.inference.predict, POST),
            "feedback": (self._feedback, POST), "monitor": (self._monitor, GET),
        }  # fmt: skip
        found = handlers.get("/".join(rest))
        if found is None:
            raise NotFound(f'a model has no "{"/".join(rest)[:60]}"; {did_you_mean("/".join(rest), handlers)}')
        return found

    def _model(self, names: dict[str, str]) -> Model:
        return self.repository.get(names["name"], names.get("version"))

    def _later(self, work: Coroutine[Any, Any, Response], respond: Respond) -> None:
        """Answers from a task, for what has to wait for a thread."""

        async def run() -> None:
            try:
                respond(await work)
            except Exception as error:
                refusal = Refusal.of(error)
                if refusal is not error and refusal.status == 500:
                    log.error("a request failed", exc_info=error)
                respond(Response.error(refusal))

        task = asyncio.ensure_future(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- the small answers

    def _live(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        respond(Response.json({"live": True}))

    def _ready(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        ready = self.ready and self.repository.ready
        respond(Response.json({"ready": ready, "live": True}, 200 if ready else 503))

    def _model_ready(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        model = self._model(names)
        respond(Response.json({"name": model.name, "ready": self.ready}, 200 if self.ready else 503))

    def _server_metadata(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        respond(Response.json({"name": "calibrant", "version": __version__, "extensions": EXTENSIONS}))

    def _model_metadata(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        model = self._model(names)
        respond(Response.json(model.metadata(self.repository.versions(model.name))))

    def _config(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        respond(Response.json(self._model(names).config()))

    def _statistics(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        name, version = names.get("name"), names.get("version")
        if self.peers is None or request.internal:
            respond(Response.json({"model_stats": self._own_statistics(name, version)}))
            return

        async def work() -> Response:
            return Response.json({"model_stats": await self.statistics(name, version)})

        self._later(work(), respond)

    def _own_statistics(self, name: str | None, version: str | None) -> list[dict[str, Any]]:
        if name is None:
            models = self.repository.all()
        elif version is not None:
            models = [self.repository.get(name, version)]
        else:
            self.repository.get(name)
            models = list(self.repository.models[name].values())
        return [m.stats() for m in models]

    async def statistics(self, name: str | None, version: str | None) -> list[dict[str, Any]]:
        """Of one model or all, over all workers."""
        own = self._own_statistics(name, version)
        if self.peers is None:
            return own
        replies = await self.peers.all("GET", f"{_path_of(name, version)}/stats")
        return merged_statistics([own, *(r.json()["model_stats"] for r in replies if r.status == 200)])

    def _page(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        html = picture_api.page(sorted(self.repository.models))
        respond(Response(200, [html.encode()], b"text/html; charset=utf-8"))

    def _openapi(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        respond(Response.json(self._document()))

    def _docs(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        respond(Response(200, [openapi.page(self._document()).encode()], b"text/html; charset=utf-8"))

    def _document(self) -> dict[str, Any]:
        monitored = any(m.monitor is not None for m in self.repository.all())
        return openapi.document(
            sorted(self.repository.models), admin=self.options.admin, monitored=monitored,
            guarded=self.options.token is not None,
        )  # fmt: skip

    def _metrics(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        out, kind = Exposition(), b"text/plain; version=0.0.4; charset=utf-8"
        watched = [m.monitor for m in self.repository.all() if m.monitor is not None]

        async def work() -> Response:
            # In a thread: a report takes a while, and longer where the monitor is just writing to its disk.
            reports = await asyncio.to_thread(lambda: {id(m): m.report() for m in watched if m.counts})
            expose(out, self.repository, self.statuses, self.front, self.lifecycle, self.started, reports)
            for (method, code), count in sorted(self.grpc_calls.items()):
                labels = {"method": method, "code": code}
                out.add("calibrant_grpc_requests_total", "counter", "gRPC answers by code.", count, labels)
            if self.peers is None or request.internal:
                return Response(200, [out.text().encode()], kind)
            replies = await self.peers.all("GET", "/metrics")
            texts = {r.worker: r.body.decode() for r in replies if r.status == 200}
            return Response(200, [merged_metrics({self.peers.seat.number: out.text(), **texts}).encode()], kind)

        self._later(work(), respond)

    # ---- the repository

    def _index(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        rows = self.repository.index()
        if len(request.body) and json_object(request.body).get("ready") is True:
            rows = [row for row in rows if row["state"] == "READY"]
        respond(Response.json(rows))

    def _load(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        self._administered(request)

        async def work() -> Response:
            await self.load(names["name"], everywhere=not request.internal)
            return Response.json({})

        self._later(work(), respond)

    def _unload(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        self._administered(request)

        async def work() -> Response:
            await self.unload(names["name"], everywhere=not request.internal)
            return Response.json({})

        self._later(work(), respond)

    async def load(self, name: str, *, everywhere: bool = True) -> None:
        if self.lifecycle is not None:
            await self.lifecycle.load(name)
        await self._same_at_peers(f"/v2/repository/models/{quote(name, safe='')}/load", everywhere)

    async def unload(self, name: str, *, everywhere: bool = True) -> None:
        if self.lifecycle is not None:
            await self.lifecycle.unload(name)
        await self._same_at_peers(f"/v2/repository/models/{quote(name, safe='')}/unload", everywhere)

    async def _same_at_peers(self, target: str, everywhere: bool) -> None:
        if self.peers is None or not everywhere:
            return
        for reply in await self.peers.all("POST", target, b"{}"):
            if reply.status != 200:
                raise Refusal.with_status(reply.status, f"worker {reply.worker}: {reply.json()['error']}")

    def _administered(self, request: Request) -> None:
        if not self.options.admin or self.lifecycle is None:
            raise Forbidden("loading and unloading over the network is off; start the server with --admin")
        parameters = json_object(request.body).get("parameters") if len(request.body) else None
        for key in parameters if isinstance(parameters, dict) else ():
            if key == "config" or key.startswith("file:"):
                raise Forbidden(f'"{key[:40]}" would let a caller write model files, which this server never does')

    # ---- labels and what they tell

    def _feedback(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        model = self._model(names)
        own = model.require_monitor()
        if b"content-encoding" in request.headers:
            encoding = request.headers[b"content-encoding"].decode("latin-1").strip().lower()
            request.body = decompress(request.body, encoding, MOST_FEEDBACK)
        ids, labels = read_labels(request.body, model.class_names or ())
        if self._left_to_the_leader(request, respond):
            return
        # Without a version: whichever file answered, a canary or the one before a reload.
        same = (m for m in tuple(self.monitors) if m.model.name == model.name)
        monitors = [own] if "version" in names else [m for m in same if m.model.classes == own.model.classes]

        async def work() -> Response:
            await self._caught_up()
            reply = await asyncio.to_thread(label_all, monitors, ids, labels)
            if reply.unknown and len(reply.unknown) == len(reply.states):
                raise NotFound(f'no prediction of {model.name} has the id "{reply.unknown[0][:80]}"')
            counts = {state: reply.count(state) for state in ("accepted", "repeated", "changed")}
            return Response.json({**counts, "unknown": reply.unknown})

        self._later(work(), respond)

    def _monitor(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        model = self._model(names)
        monitor = model.require_monitor()
        if self._left_to_the_leader(request, respond):
            return
        others = [] if "version" in names else [
            m.monitor for m in self.repository.models[model.name].values() if m.monitor is not None
        ]  # fmt: skip

        def report() -> dict[str, Any]:
            body = monitor.report()
            if len(others) > 1:  # canaries and shadows side by side, for the figures that decide
                body["versions"] = {m.model.version: m.summary() for m in others}
            return body

        async def work() -> Response:
            await self._caught_up()
            return Response.json(await asyncio.to_thread(report))

        self._later(work(), respond)

    # ---- one of several workers

    def _left_to_the_leader(self, request: Request, respond: Respond) -> bool:
        """Labels and reports are the business of the worker that watches the predictions of all."""
        peers = self.peers
        if peers is None or peers.leads:
            return False
        method, target, body = request.method.decode(), request.target.decode("latin-1"), bytes(request.body)

        async def work() -> Response:
            reply = await peers.leader(method, target, body)
            return Response(reply.status, [reply.body])

        self._later(work(), respond)
        return True

    async def _caught_up(self) -> None:
        """Waits until the predictions that other workers have made so far are in the log and taken in here."""
        if self.peers is not None:
            await self.peers.all("POST", FLUSH)
            await asyncio.to_thread(self.flush)

    def _flush(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        if not request.internal:
            raise NotFound(f'nothing is served at "{FLUSH}"')

        async def work() -> Response:
            await asyncio.to_thread(self.flush)
            return Response.json({})

        self._later(work(), respond)


def bears(authorization: bytes, token: str) -> bool:
    """Whether the header's value is this bearer token."""
    scheme, _, given = authorization.partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), token.encode())


def _nothing() -> None:
    pass


def _path_of(name: str | None, version: str | None) -> str:
    path = "/v2/models" if name is None else f"/v2/models/{quote(name, safe='')}"
    return path if version is None else f"{path}/versions/{quote(version, safe='')}"


def _call_back(jobs: list[Job]) -> None:
    for job in jobs:
        job.done(job)
