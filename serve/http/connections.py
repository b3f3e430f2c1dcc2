"""The connections of one server, and what they share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from email.utils import formatdate
from ipaddress import ip_network
from typing import Protocol

from calibrant.serve.http.connection import Connection
from calibrant.serve.http.message import Head, Request, Response
from calibrant.serve.limits import THIS_MACHINE, Limits
from calibrant.serve.room import Room


class App(Protocol):
    """What answers requests: calls `respond` once, now or later, from the event loop."""

    def __call__(self, request: Request, respond: Callable[[Response], None]) -> None: ...


Gate = Callable[[Request], bool]


class Connections:
    """The connections of one server: how many there may be, and when one ends."""

    def __init__(
        self, app: App, limits: Limits, *, gate: Gate | None = None, trusted: Sequence[str] = THIS_MACHINE
    ) -> None:
        """`gate` raises what a request will be refused with whatever its body says, and says whether that is long to
        read. `trusted`: networks of proxies."""
        self.app, self.limits = app, limits
        self.gate: Gate = gate or (lambda request: False)
        self.room = Room(limits, [ip_network(text) for text in trusted])
        self.open: set[Connection] = set()
        self.draining = False
        self.accepted = 0
        self.refused = 0
        self.refusals: dict[int, int] = {}  # by status, of what never became a request
        self.heads: dict[bytes, Head] = {}
        self._date = (0, b"")

    def renew(self, limits: Limits, trusted: Sequence[str]) -> None:
        """For connections from here on."""
        self.limits = limits
        self.room.renew(limits, [ip_network(text) for text in trusted])

    def connection(self) -> Connection:
        return Connection(self)

    def date(self) -> bytes:
        now = int(time.time())
        if now != self._date[0]:
            self._date = (now, formatdate(now, usegmt=True).encode())
        return self._date[1]

    def sweep(self) -> None:
        """Ends what has taken too long; called a few times a second."""
        now = time.monotonic()
        for connection in list(self.open):
            if connection.deadline < now or connection.lags(now):
                connection.expire()

    def drain(self) -> None:
        """Answers say `close` from here on; idle connections get a moment for a request that is on its way."""
        self.draining = True
        soon = time.monotonic() + 0.5
        for connection in self.open:
            if connection.idle:
                connection.deadline = min(connection.deadline, soon)

    def keep(self, data: bytes, head: Head) -> None:
        if len(data) <= 2048:
            if len(self.heads) >= 2048:  # heads that are never the same again: a fresh start is cheap
                self.heads.clear()
            self.heads[data] = head

    @property
    def busy(self) -> int:
        return sum(not c.idle for c in self.open)
