"""A caller who speaks HTTP/2 frame by frame, and a server to speak it to."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from calibrant.serve.processes.background import Running, running

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4
INFERENCE = "/inference.GRPCInferenceService/"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def message(data: bytes, *, compressed: bool = False) -> bytes:
    return struct.pack(">BI", compressed, len(data)) + data


@dataclass
class Answer:
    head: dict[str, str] = field(default_factory=dict)
    data: bytes = b""
    trailers: dict[str, str] = field(default_factory=dict)
    reset: int | None = None

    @property
    def status(self) -> int:
        return int({**self.head, **self.trailers}["grpc-status"])

    @property
    def messages(self) -> list[bytes]:
        found, rest = [], self.data
        while rest:
            (size,) = struct.unpack(">I", rest[1:5])
            found.append(rest[5 : 5 + size])
            rest = rest[5 + size :]
        return found


class Talker:
    """One connection. What comes is kept in `answers`, by stream, and in `seen`."""

    def __init__(self, host: str, port: int, *, settings: bytes = b"", room: int = 1 << 24, greet: bool = True) -> None:
        self.socket = socket.create_connection((host, port), timeout=60)
        import hpack

        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.answers: dict[int, Answer] = {}
        self.seen: list[tuple[int, int, int, bytes]] = []
        self._rest = b""
        if greet:
            self.send(PREFACE + frame(SETTINGS, 0, 0, settings))
        if greet and room:  # of the connection, beyond the 65,535 bytes that it begins with
            self.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", room)))

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def head(self, method: str, *more: tuple[str, str], **changes: str) -> bytes:
        """The header block of a call."""
        path = method if method.startswith("/") else INFERENCE + method
        changes = {k.replace("_", "-"): v for k, v in changes.items()}
        fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "a", "te": "trailers",
                  "content-type": "application/grpc", **changes}  # fmt: skip
        return bytes(self.encoder.encode([*fields.items(), *more]))

    def call(self, stream: int, method: str, data: bytes = b"", *more: tuple[str, str]) -> None:
        block = self.head(method, *more)
        self.send(frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, message(data)))

    def ask(self, stream: int, method: str, data: bytes = b"", *more: tuple[str, str]) -> Answer:
        self.call(stream, method, data, *more)
        return self.answer(stream)

    def answer(self, stream: int) -> Answer:
        """Once it has ended."""
        self.until(lambda: self._over(stream))
        return self.answers[stream]

    def _over(self, stream: int) -> bool:
        found = self.answers.get(stream)
        return found is not None and ("grpc-status" in {**found.head, **found.trailers} or found.reset is not None)

    def pong(self) -> None:
        """Until all that was sent has been read."""
        before = self.count(PING)
        self.send(frame(PING, 0, 0, b"whatever"))
        self.until(lambda: self.count(PING) > before)

    def count(self, kind: int) -> int:
        return sum(seen[0] == kind for seen in self.seen)

    def goaway(self) -> int:
        """Reads to the end of the connection; the code of the last GOAWAY."""
        with contextlib.suppress(ConnectionError):
            self.until(lambda: False)
        return struct.unpack(">I", next(p for k, _, _, p in reversed(self.seen) if k == GOAWAY)[4:8])[0]

    def until(self, done: Callable[[], bool]) -> None:
        while not done():
            data = self.socket.recv(65536)
            if not data:
                if done():
                    return
                raise ConnectionError("closed")
            self._rest += data
            self._read()

    def _read(self) -> None:
        while len(self._rest) >= 9:
            size = int.from_bytes(self._rest[:3], "big")
            if len(self._rest) < 9 + size:
                return
            kind, flags, stream = struct.unpack(">BBI", self._rest[3:9])
            payload, self._rest = self._rest[9 : 9 + size], self._rest[9 + size :]
            self.seen.append((kind, flags, stream, payload))
            if stream:
                self._of_stream(kind, stream, payload)

    def _of_stream(self, kind: int, stream: int, payload: bytes) -> None:
        answer = self.answers.setdefault(stream, Answer())
        if kind == HEADERS:
            block = dict(self.decoder.decode(payload))
            if answer.head:
                answer.trailers = block
            else:
                answer.head = block
        elif kind == DATA:
            answer.data += payload
        elif kind == RST_STREAM:
            (answer.reset,) = struct.unpack(">I", payload)


@pytest.fixture(scope="session")
def grpc_server(model_file: Path) -> Iterator[Running]:
    """Shared by the tests that leave it as they found it."""
    pytest.importorskip("hpack")
    with running(model_file, arguments=["--threads", "1", "--grpc-port", "0", "--quiet"]) as started:
        yield started


@pytest.fixture
def talk(grpc_server: Running) -> Iterator[Callable[..., Talker]]:
    """Opens connections to it, or to another one."""
    with contextlib.ExitStack() as stack:

        def open_(server: Running = grpc_server, **how: object) -> Talker:
            assert server.grpc_port is not None
            return stack.enter_context(contextlib.closing(Talker(server.host, server.grpc_port, **how)))  # type: ignore[arg-type]

        yield open_
