"""From a request to its handler: the address, the verb, the token; and the counts of what was answered."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from calibrant.serve.access import Access, request_id
from calibrant.serve.control import Control
from calibrant.serve.http.handlers import infer, json_length, metrics, predict
from calibrant.serve.http.message import Request, Respond, Response
from calibrant.serve.http.openapi.document import document
from calibrant.serve.http.routes import GET, Names, Route, Router
from calibrant.serve.inference import Inference
from calibrant.serve.protocol.body import LARGE_JSON, refuse_large_json, refuse_large_tensors
from calibrant.serve.protocol.errors import PutAway, Refusal, TooLarge, WrongMethod
from calibrant.serve.tracing import Traces, parent_of

if TYPE_CHECKING:
    from calibrant.serve.http.connections import Connections
    from calibrant.serve.tls import Renewable


class OtherFront(Protocol):
    """Connections of another transport, as far as they are counted."""

    open: set[Any]
    accepted: int
    refused: int
    faults: int


class Application:
    """Answers HTTP requests from the two planes. Everything here runs on the event loop's thread."""

    def __init__(self, inference: Inference, control: Control, access: Access | None = None) -> None:
        self.inference, self.control, self.access = inference, control, access or Access()
        self.connections: Connections | None = None
        self.traces: Traces | None = None
        self.tls: Sequence[Renewable] = ()
        self.started = time.time()
        self.statuses: dict[int, int] = {}
        self.grpc_calls: dict[tuple[str, str], int] = {}  # by method and code
        self.grpc: OtherFront | None = None
        self._router = Router()
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, request: Request, respond: Respond) -> None:
        given = request.headers.get(b"x-request-id", b"")
        if given or self.access.logged:
            request.id = request.id or request_id(given)

        def counted(response: Response) -> None:
            if request.id:
                response.headers.append((b"x-request-id", request.id))
            self.statuses[response.status] = self.statuses.get(response.status, 0) + 1
            respond(response)
            if self.access.logged:
                self._log(request, response)
            if self.traces is not None and not request.internal:
                self._trace(self.traces, request, response, route)

        route: Route | None = None
        try:
            route, names = self._admit(request)
            if route.most and len(request.body) > route.most:
                raise TooLarge(f"the body has {len(request.body)} bytes; at most {route.most} are taken here")
            answer = route.handler(self, request, names, counted)
            if isinstance(answer, Response):
                counted(answer)
            elif answer is not None:
                self._later(answer, counted)
        except PutAway as away:
            self._once_loaded(away, request, respond, counted)
        except Exception as error:
            counted(Response.error(Refusal.of(error)))

    def _once_loaded(self, away: PutAway, request: Request, respond: Respond, counted: Respond) -> None:
        """Answers when the model is there again."""
        if time.monotonic() - request.received > self.inference.limits.request_seconds:
            counted(Response.error(away))
            return

        async def again() -> None:
            try:
                await self.control.bring(away)
            except Exception as error:
                counted(Response.error(Refusal.of(error)))
            else:
                self(request, respond)

        self._keep(asyncio.ensure_future(again()))

    def _admit(self, request: Request) -> tuple[Route, Names]:
        """The route of an address that is there, takes the verb, and is open to the caller."""
        path = request.target.partition(b"?")[0]
        route, names = self._router.find(path)
        if route.needs == "workers" and self.control.others is None:
            raise self._router.unknown(path)
        if request.method != route.verb and not (request.method == b"HEAD" and route.verb == GET):
            verb = route.verb.decode()
            raise WrongMethod(f"use {verb} here, not {request.method.decode()}", allow=verb)
        if self.access.hosts and not route.open and not request.internal:
            self.access.check_host(request.headers.get(b"host", b""), or_address=route.handler is metrics)
        if self.access.tokens and not route.open and not request.internal:
            given = request.headers.get(b"authorization", b"")
            request.token = self.access.authorise(given, send="header Authorization", right=route.right)
        return route, names

    def gate(self, request: Request) -> bool:
        """Raises what a request will be refused with whatever its body says, so that it need not be sent. Whether
        the body is long to read, as JSON and pictures are."""
        route, names = self._admit(request)
        length = int(request.headers.get(b"content-length", b"0"))  # 0: in chunks
        if route.most and length > route.most:
            raise TooLarge(f"the body has {length} bytes; at most {route.most} are taken here")
        if not route.of_a_model:
            return route.handler is predict
        with contextlib.suppress(PutAway):
            model = self.control.model(names["name"], names.get("version"))
            if route.handler is infer and b"content-encoding" not in request.headers:
                size = json_length(request)
                size = length if size is None else size
                refuse_large_json(size, model.target)
                refuse_large_tensors(length - size, model.target)
                return size > LARGE_JSON
        return route.handler is predict

    def internal(self, request: Request, respond: Respond) -> None:
        """A request of another worker, which came by a socket that only this user can open."""
        request.internal = True
        self(request, respond)

    def document(self) -> dict[str, Any]:
        """The OpenAPI document."""
        repository = self.control.repository
        monitored = any(m.monitor is not None for m in repository.all())
        return document(
            sorted(repository.models),
            admin=self.control.admin,
            monitored=monitored,
            guarded=bool(self.access.tokens),
        )

    def _later(self, work: Coroutine[Any, Any, Response], respond: Respond) -> None:
        """Answers from a task, for what has to wait."""

        async def run() -> None:
            try:
                respond(await work)
            except Exception as error:
                respond(Response.error(Refusal.of(error)))

        self._keep(asyncio.ensure_future(run()))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _trace(self, traces: Traces, request: Request, response: Response, route: Route | None) -> None:
        """The span's name has the pattern of the address, not the address itself: names are to be few."""
        method, path = request.method.decode("latin-1"), request.target.partition(b"?")[0].decode("latin-1")
        attributes = {"http.request.method": method, "url.path": path, "http.response.status_code": response.status}
        if route is not None:
            attributes["http.route"] = route.addresses[0]
        if request.id:
            attributes["calibrant.request_id"] = request.id.decode()
        if request.answered_by is not None:
            attributes["calibrant.model"], attributes["calibrant.version"] = request.answered_by
        traces.answered(
            method if route is None else f"{method} {route.addresses[0]}",
            request.headers.get(b"traceparent", b""),
            request.received,
            None if request.ticket is None else request.ticket.ran,
            failed=response.status >= 500,
            attributes=attributes,
        )

    def _log(self, request: Request, response: Response) -> None:
        method, path = request.method.decode(), request.target.decode("latin-1")
        size = sum(map(len, response.parts))
        more = {"request_id": request.id.decode()}
        if request.token:
            more["token"] = request.token
        if request.answered_by is not None:
            more["model"], more["version"] = request.answered_by
        if (parent := parent_of(request.headers.get(b"traceparent", b""))) is not None:
            more["trace_id"] = f"{parent[0]:032x}"
        self.access.note(request.peer, method, path, response.status, size, request.received, **more)
