"""A request over HTTP and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson

from calibrant.serve.protocol.errors import Refusal, Unauthorized, WrongMethod

if TYPE_CHECKING:
    from calibrant.serve.inference import Ticket

JSON = b"application/json"
EMPTY = memoryview(b"")
_REASONS = {s.value: s.phrase.encode() for s in HTTPStatus}


@dataclass(slots=True)
class Request:
    method: bytes
    target: bytes  # as sent, with the query
    headers: dict[bytes, bytes]  # names in lower case
    body: memoryview = EMPTY
    peer: str = ""
    received: float = 0.0  # time.monotonic, when its last byte came
    ticket: Ticket | None = None  # to be given up when the caller goes away
    internal: bool = False  # from another worker
    id: bytes = b""  # X-Request-Id
    charge: Callable[[int], None] | None = None  # for what a compressed body takes of the room once it is unpacked
    answered_by: tuple[str, str] | None = None  # model and version, of what is asked of one
    token: str = ""  # its name, where the caller showed one

    def give_up(self) -> None:
        if self.ticket is not None:
            self.ticket.give_up()


@dataclass(slots=True)
class Response:
    status: int
    parts: list[bytes | memoryview]
    content_type: bytes = JSON
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)

    def head(self, size: int, date: bytes, *, keep_alive: bool, http10: bool) -> bytes:
        """The bytes before `size` bytes of body, to a caller that speaks HTTP/1.0 or 1.1."""
        head = b"HTTP/1.1 %d %b\r\ncontent-length: %d\r\ndate: %b\r\n" % (
            self.status,
            _REASONS.get(self.status, b"Unknown"),
            size,
            date,
        )
        if size:
            head += b"content-type: %b\r\n" % self.content_type
        for name, value in self.headers:
            head += b"%b: %b\r\n" % (name, value)
        if not keep_alive:
            head += b"connection: close\r\n"
        elif http10:  # which closes unless it is told otherwise
            head += b"connection: keep-alive\r\n"
        return head + b"\r\n"

    @classmethod
    def json(cls, value: Any, status: int = 200) -> Response:
        return cls(status, [orjson.dumps(value, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)])

    @classmethod
    def html(cls, page: str) -> Response:
        return cls(200, [page.encode()], b"text/html; charset=utf-8")

    @classmethod
    def error(cls, refusal: Refusal) -> Response:
        response = cls.json({"error": refusal.message}, refusal.status)
        if isinstance(refusal, Unauthorized):
            response.headers.append((b"www-authenticate", b'Bearer realm="calibrant"'))
        if isinstance(refusal, WrongMethod):
            response.headers.append((b"allow", refusal.allow.encode()))
        if refusal.retry_after is not None:
            response.headers.append((b"retry-after", str(max(1, round(refusal.retry_after))).encode()))
        return response


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(type(value).__name__)


Respond = Callable[[Response], None]


@dataclass(slots=True)
class Head:
    """A request's head, parsed and found good. Callers send the same bytes again and again, so these are kept."""

    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    keep_alive: bool
    length: int  # of the body
    json_length: int  # of the JSON before binary tensors, 0 where there are none
    http10: bool = False
    expects: bool = False  # to be told to go on before it sends the body
    costly: bool = False  # its body is long to read, so that there is no hurry to receive it
    passed: float = 0.0  # until then (time.monotonic) bodies of this head may come without being asked about anew
