"""The V2 protocol over gRPC: the front itself, an HTTP/2 of our own beside that of HTTP/1.1.

grpcio's server costs four times as much a request and hands requests over one by one, so that batches do not form. Here
they reach the queue as those of HTTP do, under the same limits. Messages are read and written by `wire`; field numbers
are those of the published grpc_service.proto and model_config.proto.
"""

from __future__ import annotations

import time
from typing import Protocol

from calibrant.errors import MissingExtra
from calibrant.serve.access import request_id
from calibrant.serve.grpc.service import SERVICE, Service
from calibrant.serve.inference import Ticket
from calibrant.serve.limits import Limits
from calibrant.serve.room import Room
from calibrant.serve.tracing import Traces, parent_of

try:
    from calibrant.serve.grpc.call import STATUS
    from calibrant.serve.grpc.connection import Http2Connection
    from calibrant.serve.grpc.heads import CallHead
except ModuleNotFoundError as error:
    if error.name != "hpack":
        raise
    raise MissingExtra("calibrant serve --grpc-port", "grpc", "hpack") from None

# Of ours and not of the caller's, as OpenTelemetry tells them apart on the side of a server.
FAULTS = ("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")


class Asked(Protocol):
    """What is known of a message when it has been answered."""

    received: float
    token: str
    answered_by: tuple[str, str] | None
    ticket: Ticket | None


class Front:
    """The gRPC connections of one server, and what they share with those of HTTP."""

    def __init__(self, service: Service, limits: Limits, room: Room, traces: Traces | None = None) -> None:
        self.service, self.limits, self.room, self.traces = service, limits, room, traces
        self.open: set[Http2Connection] = set()
        self.draining = False
        self.accepted = self.refused = 0
        self.faults = 0  # connections that were ended for what they sent

    def connection(self) -> Http2Connection:
        return Http2Connection(self)

    def note(self, peer: str, head: CallHead, method: str, status: str, size: int, asked: Asked) -> None:
        """Counts a call, writes it to the access log where there is one, and traces it where it is chosen."""
        calls, key = self.service.calls, (method, status)
        calls[key] = calls.get(key, 0) + 1
        if not self.service.access.logged and self.traces is None:
            return
        id_ = request_id(head.request_id).decode()
        about = {} if asked.answered_by is None else dict(zip(("model", "version"), asked.answered_by, strict=True))
        path = head.path[:200]
        if self.service.access.logged:
            more = {"request_id": id_, **({"token": asked.token} if asked.token else {}), **about}
            if (parent := parent_of(head.traceparent)) is not None:
                more["trace_id"] = f"{parent[0]:032x}"
            self.service.access.note(peer, "gRPC", path, status, size, asked.received, **more)
        if self.traces is not None:
            service, _, name = path.strip("/").rpartition("/")
            attributes: dict[str, str | int] = {
                "rpc.system": "grpc",
                "rpc.service": service,
                "rpc.method": name,
                "calibrant.request_id": id_,
            }
            attributes["rpc.grpc.status_code"] = STATUS.index(status)
            attributes |= {f"calibrant.{key}": value for key, value in about.items()}
            self.traces.answered(
                f"{SERVICE}/{method}" if service == SERVICE else method,
                head.traceparent,
                asked.received,
                None if asked.ticket is None else asked.ticket.ran,
                failed=status in FAULTS,
                attributes=attributes,
            )

    def sweep(self) -> None:
        """Ends what has taken too long; called a few times a second."""
        now = time.monotonic()
        for connection in list(self.open):
            connection.sweep(now)

    def drain(self) -> None:
        """Tells callers to go elsewhere; what is under way is answered."""
        self.draining = True
        for connection in list(self.open):
            connection.drain()

    @property
    def busy(self) -> int:
        return sum(len(c.calls) for c in self.open)
