"""The addresses of the server and what each of them answers."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

from calibrant._version import __version__
from calibrant.errors import did_you_mean
from calibrant.serve import people, protocol
from calibrant.serve.batcher import Job
from calibrant.serve.http import Request, Response
from calibrant.serve.knobs import Knobs
from calibrant.serve.limits import Limits, compress, decompress
from calibrant.serve.models import Model, Repository
from calibrant.serve.refusal import Refusal

log = logging.getLogger(__name__)

Respond = Callable[[Response], None]
Handler = Callable[[Request, Respond, dict[str, str]], None]
EXTENSIONS = ["binary_tensor_data", "classification", "model_configuration", "statistics", "schedule_policy"]


@dataclass(frozen=True)
class Options:
    token: str | None = None
    admin: bool = False  # load and unload over the network
    decoders: int = 2  # threads that decode pictures


class Application:
    """Answers requests. Everything here runs on the event loop's thread, except the decoding of pictures."""

    def __init__(self, repository: Repository, limits: Limits, options: Options | None = None) -> None:
        self.repository, self.limits = repository, limits
        self.options = options or Options()
        self.ready = True
        self.loop: asyncio.AbstractEventLoop | None = None
        self.started = time.time()
        self.statuses: dict[int, int] = {}
        self._decoders = ThreadPoolExecutor(self.options.decoders, "decode")
        self._decoding = 0
        self._routes: dict[bytes, tuple[Handler, dict[str, str], tuple[bytes, ...]]] = {}

    def deliver(self, jobs: list[Job]) -> None:
        """From the batcher's thread: one wake-up of the loop for a whole batch."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(_call_back, jobs)

    def close(self) -> None:
        self._decoders.shutdown(wait=False, cancel_futures=True)

    # ---- routing

    def __call__(self, request: Request, respond: Respond) -> None:
        def counted(response: Response) -> None:
            self.statuses[response.status] = self.statuses.get(response.status, 0) + 1
            respond(response)

        try:
            handler, names, methods = self._route(request.target.partition(b"?")[0])
            if request.method not in methods and not (request.method == b"HEAD" and b"GET" in methods):
                allow = b", ".join(methods)
                response = Response.error(Refusal(405, f"use {allow.decode()} here, not {request.method.decode()}"))
                response.headers.append((b"allow", allow))
                counted(response)
                return
            if self.options.token is not None:
                self._authorise(request, handler)
            handler(request, counted, names)
        except Exception as error:
            if not isinstance(error, Refusal):
                _log_unexpected(error)
            counted(Response.error(Refusal.of(error)))

    def _authorise(self, request: Request, handler: Handler) -> None:
        if handler in (self._live, self._ready):
            return
        given = request.headers.get(b"authorization", b"")
        wanted = b"Bearer " + (self.options.token or "").encode()
        if not hmac.compare_digest(given, wanted):
            raise Refusal(401, "a token is needed: send the header Authorization: Bearer TOKEN")

    def _route(self, path: bytes) -> tuple[Handler, dict[str, str], tuple[bytes, ...]]:
        found = self._routes.get(path)
        if found is None:
            found = self._find_route(path)
            if len(self._routes) < 1024:
                self._routes[path] = found
        return found

    def _find_route(self, path: bytes) -> tuple[Handler, dict[str, str], tuple[bytes, ...]]:
        parts = [unquote(p) for p in path.decode("ascii", "replace").strip("/").split("/")]
        get, post = (b"GET",), (b"POST",)
        match parts:
            case [""]:
                return self._page, {}, get
            case ["predict"]:
                return self._predict, {}, post
            case ["v2"]:
                return self._server_metadata, {}, get
            case ["v2", "health", "live"]:
                return self._live, {}, get
            case ["v2", "health", "ready"]:
                return self._ready, {}, get
            case ["v2", "models", "stats"]:
                return self._statistics, {}, get
            case ["v2", "models", name, *rest]:
                names = {"name": name}
                if rest[:1] == ["versions"] and len(rest) >= 2:
                    names["version"], rest = rest[1], rest[2:]
                return *self._model_route(rest, names, path), names, post if rest in (["infer"], ["predict"]) else get
            case ["v2", "repository", "index"]:
                return self._index, {}, post
        raise Refusal(404, f'nothing is served at "{path[:100].decode("ascii", "replace")}"; {_near(parts)}')

    def _model_route(self, rest: list[str], names: dict[str, str], path: bytes) -> tuple[Handler]:
        handlers: dict[tuple[str, ...], Handler] = {
            (): self._model_metadata, ("ready",): self._model_ready, ("infer",): self._infer,
            ("config",): self._config, ("stats",): self._statistics, ("predict",): self._predict,
        }  # fmt: skip
        handler = handlers.get(tuple(rest))
        if handler is None:
            known = [h[0] for h in handlers if h]
            raise Refusal(404, f'a model has no "{"/".join(rest)[:60]}"; {did_you_mean("/".join(rest), known)}')
        return (handler,)

    def _model(self, names: dict[str, str]) -> Model:
        return self.repository.get(names["name"], names.get("version"))

    # ---- the small answers

    def _live(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        respond(Response.json({"live": True}))

    def _ready(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        ready = self.ready and bool(self.repository.models)
        respond(Response.json({"ready": ready, "live": True}, 200 if ready else 503))

    def _model_ready(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        model = self._model(names)
        respond(Response.json({"name": model.name, "ready": self.ready}, 200 if self.ready else 503))

    def _server_metadata(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        extensions = [*EXTENSIONS, "model_repository"]
        respond(Response.json({"name": "calibrant", "version": __version__, "extensions": extensions}))

    def _model_metadata(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        model = self._model(names)
        respond(Response.json(model.metadata(self.repository.versions(model.name))))

    def _config(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        respond(Response.json(self._model(names).config()))

    def _statistics(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        if "name" not in names:
            models = self.repository.all()
        elif "version" in names:
            models = [self._model(names)]
        else:
            self._model(names)
            models = list(self.repository.models[names["name"]].values())
        respond(Response.json({"model_stats": [m.stats() for m in models]}))

    def _index(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        rows = self.repository.index()
        if len(request.body):
            message = protocol.json_object(request.body)
            if message.get("ready") is True:
                rows = [row for row in rows if row["state"] == "READY"]
        respond(Response.json(rows))

    def _page(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        html = people.page([m.name for m in self.repository.all()])
        respond(Response(200, [html.encode()], b"text/html; charset=utf-8"))

    # ---- inference

    def _admit(self, model: Model) -> None:
        """Refuses at once what would wait too long: a caller can go elsewhere now, not in five seconds."""
        wait = model.batcher.predicted_wait
        if wait > self.limits.max_wait:
            raise Refusal(503, f"the queue is full: about {wait:.1f} s of work is ahead", retry_after=wait / 2)

    def _infer(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        model = self._model(names)
        self._admit(model)
        body, length = self._body(request)
        try:
            infer = protocol.parse(body, length, model.target)
        except Exception:
            self._failed(model, request)
            raise
        request.body = memoryview(b"")

        def done(job: Job) -> None:
            try:
                if job.error is not None:
                    raise job.error
                respond(self._answer(model, infer, job, request))
            except Exception as error:
                self._failed(model, request)
                if not isinstance(error, Refusal):
                    _log_unexpected(error)
                respond(Response.error(Refusal.of(error)))

        self._submit(model, request, infer, done)

    def _submit(
        self, model: Model, request: Request, infer: protocol.InferRequest, done: Callable[[Job], None]
    ) -> None:
        seconds = self.limits.request_seconds
        if infer.timeout is not None:
            seconds = min(seconds, infer.timeout)
        job = Job(infer.feeds, infer.rows, model.needed_outputs(infer), done, request.received + seconds)
        request.job = job
        model.batcher.put(job)

    def _answer(self, model: Model, infer: protocol.InferRequest, job: Job, request: Request) -> Response:
        start = time.perf_counter_ns()
        tensors = model.finish(infer, job.result or {})
        encoded = protocol.encode(model.name, model.version, infer, tensors, model.class_names)
        response = Response(200, encoded.parts)
        if encoded.header_length is not None:
            response.content_type = b"application/octet-stream"
            response.headers.append((b"inference-header-content-length", str(encoded.header_length).encode()))
        self._compress(request, response)
        statistics = model.statistics
        statistics.success += 1
        statistics.rows += infer.rows
        statistics.success_ns += int((time.monotonic() - request.received) * 1e9)
        statistics.output_ns += time.perf_counter_ns() - start
        statistics.last_inference_ms = int(time.time() * 1000)
        return response

    def _failed(self, model: Model, request: Request) -> None:
        model.statistics.fail += 1
        model.statistics.fail_ns += int((time.monotonic() - request.received) * 1e9)

    def _body(self, request: Request) -> tuple[memoryview, int | None]:
        encoding = request.headers.get(b"content-encoding", b"").decode("ascii", "replace").strip().lower()
        body = decompress(request.body, encoding, self.limits.max_decompressed) if encoding else request.body
        length = request.headers.get(b"inference-header-content-length")
        if length is None:
            return body, None
        if not length.isdigit() or len(length) > 18:
            raise Refusal(400, "Inference-Header-Content-Length must be the number of bytes of the JSON")
        return body, int(length)

    def _compress(self, request: Request, response: Response) -> None:
        """Only for a caller that names gzip or deflate alone, as Triton's client does on request.

        Browsers and HTTP libraries offer compression with every request; for a few hundred bytes of probabilities it
        would cost more than it saves.
        """
        accepted = request.headers.get(b"accept-encoding")
        if accepted in (b"gzip", b"deflate"):
            response.parts = [compress(response.parts, accepted.decode())]
            response.headers.append((b"content-encoding", accepted))

    # ---- pictures from people

    def _predict(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        query = dict(parse_qsl(request.target.partition(b"?")[2].decode("ascii", "replace")))
        name = names.get("name") or query.pop("model", None)
        if name is None:
            models = sorted(self.repository.models)
            if len(models) != 1:
                raise Refusal(400, f"there are {len(models)} models; choose one with ?model=NAME: {', '.join(models)}")
            name = models[0]
        model = self.repository.get(name, names.get("version"))
        self._admit(model)
        body, _ = self._body(request)
        asked = people.read(body, request.headers.get(b"content-type", b""), query, self.limits)
        card = model.session.require_card()
        if self._decoding >= 64 * self.options.decoders:
            raise Refusal(503, "too many pictures are waiting to be decoded", retry_after=1)
        self._decoding += 1
        future = asyncio.get_running_loop().run_in_executor(
            self._decoders, people.decode, card, asked.images, self.limits
        )

        def done(job: Job) -> None:
            try:
                if job.error is not None:
                    raise job.error
                result = people.result(model, asked.knobs, job.result or {})
                respond(Response.json(people.body(model, asked, result)))
                self._count_success(model, request, job.rows)
            except Exception as error:
                self._fail(model, request, respond, error)

        def decoded(finished: asyncio.Future[Any]) -> None:
            self._decoding -= 1
            try:
                feed = finished.result()
                # The answer for people is made of probabilities and logits, so knobs stand even where none was given.
                infer = protocol.InferRequest(model.classifier.feeds(feed), len(feed), [], None, asked.knobs or Knobs())
                self._submit(model, request, infer, done)
            except Exception as error:
                self._fail(model, request, respond, error)

        future.add_done_callback(decoded)

    def _fail(self, model: Model, request: Request, respond: Respond, error: Exception) -> None:
        self._failed(model, request)
        if Refusal.of(error).status == 500 and not isinstance(error, Refusal):
            _log_unexpected(error)
        respond(Response.error(Refusal.of(error)))

    def _count_success(self, model: Model, request: Request, rows: int) -> None:
        statistics = model.statistics
        statistics.success += 1
        statistics.rows += rows
        statistics.success_ns += int((time.monotonic() - request.received) * 1e9)
        statistics.last_inference_ms = int(time.time() * 1000)


def _call_back(jobs: list[Job]) -> None:
    for job in jobs:
        job.done(job)


def _log_unexpected(error: Exception) -> None:
    if Refusal.of(error).status == 500:
        log.error("a request failed", exc_info=error)


def _near(parts: list[str]) -> str:
    known = ["v2", "v2/health/live", "v2/health/ready", "v2/models/NAME/infer", "predict", "v2/repository/index"]
    return did_you_mean("/".join(parts)[:100], known)
