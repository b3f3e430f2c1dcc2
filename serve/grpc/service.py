"""The V2 protocol over gRPC, with Triton's extensions: calls to the two planes and back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from calibrant.errors import CalibrantError
from calibrant.serve.access import Access
from calibrant.serve.control import Control
from calibrant.serve.grpc import messages, wire
from calibrant.serve.inference import Inference, Ticket
from calibrant.serve.protocol.errors import ModelNotFound, NotFound, NotReady, PutAway, Refusal

SERVICE, HEALTH = "inference.GRPCInferenceService", "grpc.health.v1.Health"


class Service:
    """The calls of the service, and of gRPC's own health service."""

    def __init__(
        self, inference: Inference, control: Control, access: Access, calls: dict[tuple[str, str], int]
    ) -> None:
        """`calls`: counts of what was answered, by method and code."""
        self.inference, self.control, self.access, self.calls = inference, control, access, calls

    def handlers(self) -> tuple[Any, ...]:
        import grpc

        unary = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._infer,
            "ModelConfig": self._config,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }
        table: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(
                self._guarded(f"{SERVICE}/{name}", call, open_=name in ("ServerLive", "ServerReady"))
            )
            for name, call in unary.items()
        }
        table["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(self._stream)
        health = {
            "Check": grpc.unary_unary_rpc_method_handler(self._guarded(f"{HEALTH}/Check", self._health, open_=True)),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch_health),
        }
        return (
            grpc.method_handlers_generic_handler(SERVICE, table),
            grpc.method_handlers_generic_handler(HEALTH, health),
        )

    async def _waiting(self, call: Callable[[memoryview, Any], Awaitable[bytes]], data: bytes, context: Any) -> bytes:
        """The answer, for which a model may have to be loaded again first."""
        try:
            return await call(memoryview(data), context)
        except PutAway as away:
            await self.control.bring(away)
            return await call(memoryview(data), context)

    def _guarded(
        self, path: str, call: Callable[[memoryview, Any], Awaitable[bytes]], *, open_: bool = False
    ) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def guarded(data: bytes, context: Any) -> bytes:
            start, code, answer = time.monotonic(), "OK", b""
            try:
                if not open_:
                    self._authorise(context, "admin" if "RepositoryModel" in path else "infer")
                answer = await self._waiting(call, data, context)
                return answer
            except asyncio.CancelledError:
                code = "CANCELLED"
                raise
            except Exception as error:
                refusal = Refusal.of(error)
                code = _status(refusal).name
                await context.abort(_status(refusal), refusal.message)
                raise
            finally:
                self._note(path, code, len(answer), start, context)

        return guarded

    def _note(self, path: str, code: str, size: int, start: float, context: Any) -> None:
        """Counts a call, and writes it to the access log where there is one."""
        key = (path.rpartition("/")[2], code)
        self.calls[key] = self.calls.get(key, 0) + 1
        if self.access.logged:
            self.access.note(context.peer(), "gRPC", f"/{path}", code, size, start)

    def _authorise(self, context: Any, right: str = "infer") -> None:
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        self.access.authorise(str(given).encode(), send="metadata authorization", right=right)

    # ---- health and metadata

    async def _server_live(self, data: memoryview, context: Any) -> bytes:
        return wire.number(1, True)

    async def _server_ready(self, data: memoryview, context: Any) -> bytes:
        return wire.number(1, self.control.ready)

    async def _model_ready(self, data: memoryview, context: Any) -> bytes:
        """Not an error where there is no such model: callers wait in a loop for one that is about to come."""
        try:
            self.control.model(*messages.model_of(data))
        except PutAway:
            return wire.number(1, self.control.accepting)
        except (ModelNotFound, NotReady):
            return b""
        return wire.number(1, self.control.accepting)

    async def _health(self, data: memoryview, context: Any) -> bytes:
        service = messages.model_of(data)[0]
        if service not in ("", SERVICE, HEALTH):
            raise NotFound(f'no service "{service[:80]}"')
        return wire.number(1, 1 if self.control.ready else 2)

    async def _watch_health(self, data: bytes, context: Any) -> AsyncIterator[bytes]:
        last = None
        while True:
            try:
                now = await self._health(memoryview(data), context)
            except Refusal:
                now = wire.number(1, 3)  # SERVICE_UNKNOWN; the protocol has the stream go on
            if now != last:
                last = now
                yield now
            await asyncio.sleep(0.5)

    async def _server_metadata(self, data: memoryview, context: Any) -> bytes:
        return messages.server_metadata(self.control.server())

    async def _model_metadata(self, data: memoryview, context: Any) -> bytes:
        return messages.model_metadata(self.control.metadata(*messages.model_of(data)))

    async def _config(self, data: memoryview, context: Any) -> bytes:
        return messages.config(self.control.config(*messages.model_of(data)))

    async def _statistics(self, data: memoryview, context: Any) -> bytes:
        name, version = messages.model_of(data)
        stats = await self.control.statistics(name or None, version)
        return b"".join(wire.message(1, messages.statistics(entry)) for entry in stats)

    # ---- the repository

    async def _index(self, data: memoryview, context: Any) -> bytes:
        only_ready = any(n == 2 and value for n, _, value in wire.fields(data))
        return messages.index(self.control.index(only_ready=only_ready))

    async def _load(self, data: memoryview, context: Any) -> bytes:
        await self.control.load(self._administered(data))
        return b""

    async def _unload(self, data: memoryview, context: Any) -> bytes:
        await self.control.unload(self._administered(data))
        return b""

    def _administered(self, data: memoryview) -> str:
        """The name of the model, where callers may load and unload."""
        self.control.require_admin()
        name, parameters = messages.model_to_load(data)
        self.control.refuse_files(parameters)
        return name

    # ---- inference

    async def _infer(self, data: memoryview, context: Any) -> bytes:
        model = self.inference.admit(*messages.model_of(data))
        ticket = Ticket(time.monotonic())
        try:
            request = messages.read_request(data, model.target)
        except Exception as error:
            raise self.inference.failed(model, ticket, error) from None
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def answer(message: bytes) -> None:
            if not future.done():
                future.set_result(message)

        def refuse(refusal: Refusal) -> None:
            if not future.done():
                future.set_exception(refusal)

        self.inference.infer(
            model,
            request,
            ticket,
            write=lambda tensors: messages.write_answer(model, request, tensors),
            answer=answer,
            refuse=refuse,
        )
        try:
            return await future
        except asyncio.CancelledError:  # the caller went away or its deadline passed
            ticket.give_up()
            raise

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """ModelStreamInfer: answers in order; an error is a message, and the stream goes on."""
        try:
            self._authorise(context)
        except Refusal as error:
            await context.abort(_status(error), error.message)
        async for data in requests:
            start, code = time.monotonic(), "OK"
            try:
                answer = wire.message(2, await self._waiting(self._infer, data, context))
            except (Refusal, CalibrantError) as error:
                refusal = Refusal.of(error)
                code = _status(refusal).name
                answer = wire.field(1, refusal.message) + wire.message(2, b"")
            self._note(f"{SERVICE}/ModelStreamInfer", code, len(answer), start, context)
            yield answer


def _status(refusal: Refusal) -> Any:
    """The grpc.StatusCode."""
    import grpc

    return next(code for code in grpc.StatusCode if code.value[0] == refusal.grpc_code)
