"""The V2 protocol over gRPC, with Triton's extensions, on the same models, queue and checks as the HTTP front.

Needs grpcio and nothing else: messages are read and written by `wire`. Field numbers are those of the published
grpc_service.proto and model_config.proto.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson

from calibrant._version import __version__
from calibrant.errors import CalibrantError, ConfigError, MissingExtra
from calibrant.serve.config import ServeConfig
from calibrant.serve.grpc import messages as messages
from calibrant.serve.grpc import wire
from calibrant.serve.http.app import EXTENSIONS, Application, access, bears
from calibrant.serve.models.batcher import Job
from calibrant.serve.models.repository import Model
from calibrant.serve.protocol.errors import Forbidden, ModelNotFound, NotFound, NotReady, Refusal, Unauthorized
from calibrant.serve.protocol.message import Request, Response

log = logging.getLogger(__name__)

SERVICE, HEALTH = "inference.GRPCInferenceService", "grpc.health.v1.Health"


async def start(app: Application, config: ServeConfig, *, shared_port: bool = False) -> tuple[Any, int]:
    """The running server and its port, which other workers may listen on as well."""
    try:
        import grpc
    except ImportError:
        raise MissingExtra("calibrant serve --grpc-port", "grpc", "grpcio") from None
    if not shared_port:
        _probe(config)
    size = config.limits.max_body
    server = grpc.aio.server(options=[
        ("grpc.max_receive_message_length", size), ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", int(shared_port)),
    ])  # fmt: skip
    service = Service(app, config.token)
    server.add_generic_rpc_handlers(service.handlers())
    host = f"[{config.host}]" if ":" in config.host else config.host
    address = f"{host}:{config.grpc_port}"
    try:
        if config.tls_cert is not None:
            key = (config.tls_key or config.tls_cert).read_bytes()
            secure = grpc.ssl_server_credentials([(key, config.tls_cert.read_bytes())])
            port = server.add_secure_port(address, secure)
        else:
            port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigError(
            f"cannot listen for gRPC ({error})", where=address, fix="choose another --grpc-port"
        ) from None
    await server.start()
    return server, int(port)


def _probe(config: ServeConfig) -> None:
    """gRPC's own library writes lines of its own to stderr about a port that is taken."""
    import socket

    try:
        family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.grpc_port, type=socket.SOCK_STREAM)[
            0
        ]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ConfigError(f"cannot listen for gRPC ({error.strerror})", where=f"{config.host}:{config.grpc_port}",
                          fix="choose another --grpc-port") from None  # fmt: skip


class Service:
    def __init__(self, app: Application, token: str | None) -> None:
        import grpc

        self.app, self.token = app, token
        self._codes = {code.value[0]: code.name for code in grpc.StatusCode}

    def handlers(self) -> tuple[Any, ...]:
        import grpc

        unary = {
            "ServerLive": self._server_live, "ServerReady": self._server_ready, "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata, "ModelMetadata": self._model_metadata,
            "ModelInfer": self._infer, "ModelConfig": self._config, "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index, "RepositoryModelLoad": self._load, "RepositoryModelUnload": self._unload,
        }  # fmt: skip
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
            grpc.method_handlers_generic_handler(SERVICE, table), grpc.method_handlers_generic_handler(HEALTH, health)
        )  # fmt: skip

    def _guarded(
        self, path: str, call: Callable[[memoryview, Any], Awaitable[bytes]], *, open_: bool = False
    ) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def guarded(data: bytes, context: Any) -> bytes:
            start, code, answer = time.monotonic(), "OK", b""
            try:
                if not open_:
                    self._authorise(context)
                answer = await call(memoryview(data), context)
                return answer
            except asyncio.CancelledError:
                code = "CANCELLED"
                raise
            except Exception as error:
                refusal = Refusal.of(error)
                if not isinstance(error, Refusal | CalibrantError):
                    log.error("a gRPC request failed", exc_info=error)
                code = self._codes[refusal.grpc_code]
                await _abort(context, refusal)
                raise
            finally:
                self._note(path, code, len(answer), start, context)

        return guarded

    def _note(self, path: str, code: str, size: int, start: float, context: Any) -> None:
        """Counts a call, and writes it to the access log where there is one."""
        key = (path.rpartition("/")[2], code)
        self.app.grpc_calls[key] = self.app.grpc_calls.get(key, 0) + 1
        if self.app.options.access_log:
            access.info(json.dumps({
                "peer": context.peer(), "method": "gRPC", "path": f"/{path}", "status": code, "bytes": size,
                "ms": round(1e3 * (time.monotonic() - start), 3),
            }))  # fmt: skip

    def _authorise(self, context: Any) -> None:
        if self.token is None:
            return
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        if not bears(str(given).encode(), self.token):
            raise Unauthorized("a token is needed: send the metadata authorization: Bearer TOKEN")

    # ---- health and metadata

    async def _server_live(self, data: memoryview, context: Any) -> bytes:
        return wire.number(1, True)

    async def _server_ready(self, data: memoryview, context: Any) -> bytes:
        return wire.number(1, self._is_ready)

    async def _model_ready(self, data: memoryview, context: Any) -> bytes:
        """Not an error where there is no such model: callers wait in a loop for one that is about to come."""
        try:
            self._model(data)
        except (ModelNotFound, NotReady):
            return b""
        return wire.number(1, self.app.ready)

    async def _health(self, data: memoryview, context: Any) -> bytes:
        service = _strings(data).get(1, "")
        if service not in ("", SERVICE, HEALTH):
            raise NotFound(f'no service "{service[:80]}"')
        return wire.number(1, 1 if self._is_ready else 2)

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

    @property
    def _is_ready(self) -> bool:
        return self.app.ready and self.app.repository.ready

    async def _server_metadata(self, data: memoryview, context: Any) -> bytes:
        return wire.field(1, "calibrant") + wire.field(2, __version__) + b"".join(wire.field(3, e) for e in EXTENSIONS)

    async def _model_metadata(self, data: memoryview, context: Any) -> bytes:
        model = self._model(data)
        versions = self.app.repository.versions(model.name)
        out = wire.field(1, model.name) + b"".join(wire.field(2, v) for v in versions)
        out += wire.field(3, "onnxruntime_onnx")
        out += b"".join(wire.message(4, messages.tensor(s)) for s in model.session.inputs.values() if not s.optional)
        return out + b"".join(wire.message(5, messages.tensor(s)) for s in model.session.outputs.values())

    async def _config(self, data: memoryview, context: Any) -> bytes:
        model = self._model(data)
        return messages.config(model.config())

    async def _statistics(self, data: memoryview, context: Any) -> bytes:
        asked = _strings(data)
        stats = await self.app.statistics(asked.get(1) or None, asked.get(2) or None)
        return b"".join(wire.message(1, messages.statistics(entry)) for entry in stats)

    # ---- the repository

    async def _index(self, data: memoryview, context: Any) -> bytes:
        only_ready = any(n == 2 and value for n, _, value in wire.fields(data))
        rows = [r for r in self.app.repository.index() if r["state"] == "READY" or not only_ready]
        return b"".join(
            wire.message(
                1, b"".join(wire.field(n, r[k]) for n, k in enumerate(("name", "version", "state", "reason"), 1))
            )
            for r in rows
        )

    async def _load(self, data: memoryview, context: Any) -> bytes:
        await self.app.load(self._administered(data))
        return b""

    async def _unload(self, data: memoryview, context: Any) -> bytes:
        await self.app.unload(self._administered(data))
        return b""

    def _administered(self, data: memoryview) -> str:
        """The name of the model, where callers may load and unload."""
        if not self.app.options.admin or self.app.lifecycle is None:
            raise Forbidden("loading and unloading over the network is off; start the server with --admin")
        name = ""
        for n, _, value in wire.fields(data):
            if n == 2:
                name = wire.text(value)
            elif (
                n == 3 and (key := wire.map_entry(wire.view(value))[0]) and (key == "config" or key.startswith("file:"))
            ):
                raise Forbidden(f'"{key[:40]}" would let a caller write model files, which this server never does')
        return name

    # ---- inference

    async def _infer(self, data: memoryview, context: Any) -> bytes:
        name, version = _model_of(data)
        inference = self.app.inference
        model = inference.choose(name, version)
        inference.admit(model)
        request = Request(b"POST", b"", {}, received=time.monotonic())
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        try:
            infer = messages.read_request(data, model.target)
            inference.identify(model, infer)
            model.check(infer)
        except Exception:
            model.failed(request.received)
            raise

        def answer(job: Job) -> None:
            tensors = model.finish(infer, job.result or {})
            body = messages.write_answer(model, infer, tensors)
            if not future.done():
                future.set_result(body)

        def respond(response: Response) -> None:
            if not future.done():
                message = orjson.loads(response.parts[0])["error"]
                future.set_exception(Refusal.with_status(response.status, message))

        inference.submit(model, request, infer, answer, respond)
        try:
            return await future
        except asyncio.CancelledError:  # the caller went away or its deadline passed
            if request.job is not None:
                request.job.cancelled = True
            raise

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """ModelStreamInfer: answers in order; an error is a message, and the stream goes on."""
        try:
            self._authorise(context)
        except Refusal as error:
            await _abort(context, error)
        async for data in requests:
            start, code = time.monotonic(), "OK"
            try:
                answer = wire.message(2, await self._infer(memoryview(data), context))
            except (Refusal, CalibrantError) as error:
                refusal = Refusal.of(error)
                code = self._codes[refusal.grpc_code]
                answer = wire.field(1, refusal.message) + wire.message(2, b"")
            self._note(f"{SERVICE}/ModelStreamInfer", code, len(answer), start, context)
            yield answer

    def _model(self, data: memoryview) -> Model:
        asked = _strings(data)
        return self.app.repository.get(asked.get(1, ""), asked.get(2) or None)


async def _abort(context: Any, refusal: Refusal) -> None:
    import grpc

    known = {c.value[0]: c for c in grpc.StatusCode}
    await context.abort(known[refusal.grpc_code], refusal.message)


def _strings(data: memoryview) -> dict[int, str]:
    """The text fields of a small message."""
    return {n: wire.text(value) for n, kind, value in wire.fields(data) if kind == wire.BYTES and n in (1, 2)}


def _model_of(data: memoryview) -> tuple[str, str | None]:
    name, version = "", ""
    for n, _, value in wire.fields(data):
        if n == 1:
            name = wire.text(value)
        elif n == 2:
            version = wire.text(value)
    return name, version or None
