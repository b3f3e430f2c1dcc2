"""The V2 protocol over gRPC, with Triton's extensions: calls to the two planes and back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from calibrant.errors import did_you_mean
from calibrant.serve.access import Access
from calibrant.serve.control import Control
from calibrant.serve.grpc import messages, wire
from calibrant.serve.grpc.known_requests import KnownRequests
from calibrant.serve.grpc.reflection.answers import SERVICES as REFLECTION
from calibrant.serve.grpc.reflection.answers import Reflection
from calibrant.serve.inference import Inference, Ticket
from calibrant.serve.models.model import Model
from calibrant.serve.protocol.body import LARGE_JSON
from calibrant.serve.protocol.content_encoding import decompress
from calibrant.serve.protocol.errors import (
    BadInput,
    DeadlinePassed,
    ModelNotFound,
    NotFound,
    NotReady,
    PutAway,
    Refusal,
    UnknownEncoding,
    WrongMethod,
)
from calibrant.serve.protocol.request import InferRequest, Target

SERVICE, HEALTH = "inference.GRPCInferenceService", "grpc.health.v1.Health"
LOOK_SECONDS = 0.5  # between looks at whether the health has changed, for those who watch it


class Exchange(Protocol):
    """A message that is to be answered: by `answer` or `refuse`, once; or by `send`, as often as there is something."""

    received: float  # time.monotonic, when its last byte came
    ticket: Ticket | None
    answered_by: tuple[str, str] | None  # model and version, of what is asked of one

    @property
    def expires(self) -> float: ...
    @property
    def over(self) -> bool: ...
    def charge(self, size: int) -> None: ...
    def answer(self, parts: Sequence[bytes | memoryview]) -> None: ...
    def send(self, parts: Sequence[bytes | memoryview]) -> None: ...
    def refuse(self, refusal: Refusal) -> None: ...


# Gives the answer, or work that will give it; or None, and answers later.
Handler = Callable[[memoryview, Exchange], bytes | Coroutine[Any, Any, bytes | None] | None]


@dataclass(frozen=True, slots=True)
class Method:
    name: str
    handler: Handler
    right: str = "infer"  # that the token must have; "" is open to callers without one
    streams: bool = False  # any number of messages, each with its answer
    wrapped: bool = True  # its answers stand beside errors in a message, and an error does not end the stream
    lasts: bool = False  # until the caller ends it


class Service:
    """The calls of the service, and of gRPC's own health service."""

    def __init__(
        self, inference: Inference, control: Control, access: Access, calls: dict[tuple[str, str], int]
    ) -> None:
        """`calls`: counts of what was answered, by method and code."""
        self.inference, self.control, self.access, self.calls = inference, control, access, calls
        self._known = KnownRequests()
        self._reflection: Reflection | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        methods = (
            Method("ServerLive", self._server_live, ""), Method("ServerReady", self._server_ready, ""),
            Method("ModelReady", self._model_ready), Method("ServerMetadata", self._server_metadata),
            Method("ModelMetadata", self._model_metadata), Method("ModelConfig", self._config),
            Method("ModelStatistics", self._statistics), Method("RepositoryIndex", self._index),
            Method("RepositoryModelLoad", self._load, "admin"), Method("RepositoryModelUnload", self._unload, "admin"),
            Method("ModelInfer", self._infer), Method("ModelStreamInfer", self._infer, streams=True),
        )  # fmt: skip
        reflect = Method("ServerReflectionInfo", self._reflect, streams=True, wrapped=False)
        health = (Method("Check", self._health, ""), Method("Watch", self._watch_health, "", lasts=True))
        self._methods = {f"/{SERVICE}/{m.name}": m for m in methods} | {f"/{HEALTH}/{m.name}": m for m in health}
        self._methods |= {f"/{name}/{reflect.name}": reflect for name in REFLECTION}

    def method(self, path: str) -> Method:
        found = self._methods.get(path)
        if found is None:
            raise WrongMethod(f'there is no method "{path[:100]}"; {did_you_mean(path[:100], self._methods)}')
        return found

    def authorise(self, method: Method, authorization: bytes, authority: bytes) -> str:
        """The name of the caller's token."""
        if not method.right:
            return ""
        if self.access.hosts:
            self.access.check_host(authority)
        return self.access.authorise(authorization, send="metadata authorization", right=method.right)

    def serve(self, exchange: Exchange, method: Method, data: memoryview, encoding: str | None = None) -> None:
        """Answers a message. `encoding`: how it is compressed, where it is."""
        try:
            if encoding is not None:
                self._unpack(exchange, method, data, encoding)
                return
            answer = method.handler(data, exchange)
            if isinstance(answer, bytes):
                exchange.answer((answer,))
            elif answer is not None:
                self._later(answer, exchange)
        except PutAway as away:
            self._once_loaded(away, exchange, method, data)
        except Exception as error:
            exchange.refuse(Refusal.of(error))

    def _unpack(self, exchange: Exchange, method: Method, data: memoryview, encoding: str) -> None:
        """In a thread: what is behind a small message may be large."""
        if encoding == "identity":
            raise BadInput("a message says that it is compressed, and grpc-encoding that it is not")
        if encoding not in ("gzip", "deflate"):
            raise UnknownEncoding(f'grpc-encoding "{encoding[:40]}" is not known; use gzip, deflate or identity')
        limit = self.inference.limits.max_decompressed

        def unpacked(message: memoryview) -> None:
            if not exchange.over:
                exchange.charge(len(message))
                self.serve(exchange, method, message)

        self.inference.in_thread(
            None,
            lambda: decompress(data, encoding, limit),
            unpacked,
            lambda error: exchange.refuse(Refusal.of(error)),
        )

    def _later(self, work: Coroutine[Any, Any, bytes | None], exchange: Exchange) -> None:
        """Answers from a task, for what has to wait."""

        async def run() -> None:
            try:
                answer = await work
                if answer is not None:
                    exchange.answer((answer,))
            except Exception as error:
                exchange.refuse(Refusal.of(error))

        self._keep(run())

    def _once_loaded(self, away: PutAway, exchange: Exchange, method: Method, data: memoryview) -> None:
        """Answers when the model is there again."""
        if time.monotonic() - exchange.received > self.inference.limits.request_seconds:
            exchange.refuse(away)
            return

        async def again() -> None:
            try:
                await self.control.bring(away)
            except Exception as error:
                exchange.refuse(Refusal.of(error))
            else:
                if not exchange.over:
                    self.serve(exchange, method, data)

        self._keep(again())

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- health and metadata

    def _server_live(self, data: memoryview, exchange: Exchange) -> bytes:
        return wire.number(1, True)

    def _server_ready(self, data: memoryview, exchange: Exchange) -> bytes:
        return wire.number(1, self.control.ready)

    def _model_ready(self, data: memoryview, exchange: Exchange) -> bytes:
        """Not an error where there is no such model: callers wait in a loop for one that is about to come."""
        try:
            self.control.model(*messages.model_of(data))
        except PutAway:
            return wire.number(1, self.control.accepting)
        except (ModelNotFound, NotReady):
            return b""
        return wire.number(1, self.control.accepting)

    def _health(self, data: memoryview, exchange: Exchange) -> bytes:
        service = messages.model_of(data)[0]
        if service not in ("", SERVICE, HEALTH):
            raise NotFound(f'no service "{service[:80]}"')
        return wire.number(1, 1 if self.control.ready else 2)

    async def _watch_health(self, data: memoryview, exchange: Exchange) -> None:
        last = None
        while not exchange.over:
            try:
                now = self._health(data, exchange)
            except NotFound:
                now = wire.number(1, 3)  # SERVICE_UNKNOWN; the protocol has the stream go on
            if now != last:
                last = now
                exchange.send((now,))
            await asyncio.sleep(LOOK_SECONDS)

    def _server_metadata(self, data: memoryview, exchange: Exchange) -> bytes:
        return messages.server_metadata(self.control.server())

    def _model_metadata(self, data: memoryview, exchange: Exchange) -> bytes:
        return messages.model_metadata(self.control.metadata(*messages.model_of(data)))

    def _config(self, data: memoryview, exchange: Exchange) -> bytes:
        return messages.config(self.control.config(*messages.model_of(data)))

    async def _statistics(self, data: memoryview, exchange: Exchange) -> bytes:
        name, version = messages.model_of(data)
        stats = await self.control.statistics(name or None, version)
        return b"".join(wire.message(1, messages.statistics(entry)) for entry in stats)

    def _reflect(self, data: memoryview, exchange: Exchange) -> bytes:
        if self._reflection is None:
            self._reflection = Reflection()
        return self._reflection.answer(data)

    # ---- the repository

    def _index(self, data: memoryview, exchange: Exchange) -> bytes:
        only_ready = any(n == 2 and value for n, _, value in wire.fields(data))
        return messages.index(self.control.index(only_ready=only_ready))

    async def _load(self, data: memoryview, exchange: Exchange) -> bytes:
        await self.control.load(self._administered(data))
        return b""

    async def _unload(self, data: memoryview, exchange: Exchange) -> bytes:
        await self.control.unload(self._administered(data))
        return b""

    def _administered(self, data: memoryview) -> str:
        """The name of the model, where callers may load and unload."""
        self.control.require_admin()
        name, parameters = messages.model_to_load(data)
        self.control.refuse_files(parameters)
        return name

    # ---- inference

    def _infer(self, data: memoryview, exchange: Exchange) -> None:
        found = self._known.find(data)
        if found is not None:
            known, id_ = found
            model = self.inference.admit(known.name, known.version)
            if (plan := model.target.plans.get(known.key)) is not None:
                self._ask(model, exchange, lambda: known.follow(data, plan, id_), drawn=known.version is None)
                return
        parts = messages.split(data)
        model = self.inference.admit(parts.name, parts.version)
        if len(data) <= LARGE_JSON or parts.raw:
            self._ask(model, exchange, lambda: self._read(data, parts, model.target), drawn=parts.version is None)
            return
        self.inference.in_thread(  # numbers of seven bits each take their time
            model,
            lambda: messages.request_of(parts, model.target),
            lambda request: self._ask(model, exchange, lambda: request, drawn=parts.version is None),
            lambda error: self._failed(model, exchange, error),
        )

    def _read(self, data: memoryview, parts: messages.Parts, target: Target) -> InferRequest:
        request = messages.request_of(parts, target)
        self._known.learn(data, parts, request, target)
        return request

    def _failed(self, model: Model, exchange: Exchange, error: Exception) -> None:
        """Counts a request that cannot be read."""
        exchange.answered_by = (model.name, model.version)
        exchange.refuse(self.inference.failed(model, Ticket(exchange.received), error))

    def _ask(self, model: Model, exchange: Exchange, read: Callable[[], InferRequest], *, drawn: bool) -> None:
        if exchange.over:  # while it was read in a thread
            return
        try:
            request = read()
        except Exception as error:
            self._failed(model, exchange, error)
            return
        exchange.answered_by = (model.name, model.version)
        ticket = exchange.ticket = Ticket(exchange.received, drawn)
        if exchange.expires < float("inf"):
            left = exchange.expires - exchange.received
            if left <= 0:
                self._failed(model, exchange, DeadlinePassed("the deadline of the call passed"))
                return
            request.timeout = left if request.timeout is None else min(left, request.timeout)
        self.inference.infer(
            model,
            request,
            ticket,
            write=lambda tensors: messages.write_answer(model, request, tensors),
            answer=exchange.answer,
            refuse=exchange.refuse,
        )
