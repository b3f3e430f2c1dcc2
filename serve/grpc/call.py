"""One call: its messages as they come, its answer, and its end, on the stream that is its own."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calibrant.serve.body_memory import LARGE
from calibrant.serve.grpc import frames as f
from calibrant.serve.grpc import heads
from calibrant.serve.grpc.assembly import Assembly
from calibrant.serve.grpc.heads import CallHead
from calibrant.serve.inference import Ticket
from calibrant.serve.protocol.errors import BadInput, DeadlinePassed, Refusal, TooSlow, WrongMethod

if TYPE_CHECKING:
    from calibrant.serve.grpc.connection import Http2Connection
    from calibrant.serve.grpc.service import Method

Part = bytes | memoryview
COST = 4096  # bytes of the room that an open call takes, whatever it sends
MOST_WAITING = 16_384  # whole messages of a stream whose turn has not come
HANGS = 5.0  # seconds after the time limit of requests, when a call is ended that nobody else has
STATUS = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip


@dataclass(slots=True)
class TurnedDown:
    """A call that was refused for its head, as the log and the counts see it."""

    received: float
    token: str = ""
    answered_by: tuple[str, str] | None = None
    ticket: Ticket | None = None


class Call:
    """A call with one message. What answers it calls `answer` or `refuse` once, or `send` as often as it likes."""

    __slots__ = (
        "_charged", "_headed", "answered_by", "assembly", "connection", "deadline", "ended", "expires", "granted",
        "head", "id", "method", "opened", "over", "received", "ticket", "token", "unacknowledged", "window",
    )  # fmt: skip

    def __init__(self, connection: Http2Connection, id_: int, head: CallHead, method: Method, token: str = "") -> None:
        """`token`: its name, where the caller showed one."""
        self.connection, self.id, self.head, self.method, self.token = connection, id_, head, method, token
        self.opened = self.received = time.monotonic()  # `received`: when the last byte of the message came
        self.expires = math.inf if head.timeout is None else self.opened + head.timeout
        self.deadline = min(self.expires, self.opened + connection.limits.body_seconds)
        self.assembly = Assembly(connection.limits.max_body, MOST_WAITING)
        self.window = 0  # of answers, beyond what every stream begins with
        self.granted = f.FIRST_WINDOW  # bytes that the caller may still send
        self.unacknowledged = 0  # bytes that came since that was last raised
        self.ended = False  # nothing more comes
        self.over = False  # nothing more goes, or what goes is on its way
        self.ticket: Ticket | None = None
        self.answered_by: tuple[str, str] | None = None  # model and version
        self._headed = False
        self._charged = 0
        self.charge(COST)

    def charge(self, size: int) -> None:
        """For what it takes of the room, until it is over."""
        self.connection.take(size)
        self._charged += size

    @property
    def is_large(self) -> bool:
        """Whether the message that is coming is one that is received at a pace."""
        return self.assembly.size > LARGE

    @property
    def rests(self) -> bool:
        """Whether it goes on for ever, and nothing is lost where it ends."""
        return self.method.lasts

    # ---- what comes

    def came(self, data: memoryview) -> None:
        """Bytes of messages."""
        if self.over:
            return
        try:
            self.charge(len(data))
            self.assembly.feed(data)
            self._look()
        except Refusal as refusal:
            self.refuse(refusal)

    def space(self, size: int) -> memoryview | None:
        """Where the next `size` bytes may be received directly, or some of them."""
        if self.over:
            return None
        try:
            return self.assembly.space()[:size]
        except Refusal as refusal:
            self.refuse(refusal)
            return None

    def filled(self, size: int) -> None:
        """Bytes that were received there."""
        if self.over:
            return
        try:
            self.charge(size)
            self.assembly.filled(size)
            self._look()
        except Refusal as refusal:
            self.refuse(refusal)

    def _look(self) -> None:
        """After bytes have come."""
        if len(self.assembly.whole) > 1:
            self.refuse(WrongMethod(f"a call of {self.method.name} has one message"))

    def end(self) -> None:
        """The caller has said all."""
        self.ended = True
        if self.over:
            return
        if self.assembly.partial:
            self.refuse(BadInput("the message is cut off"))
        else:
            self._said_all()

    def _said_all(self) -> None:
        """In whole messages."""
        if not self.assembly.whole:
            self.refuse(WrongMethod(f"a call of {self.method.name} has one message, and this one has none"))
            return
        self.received = now = time.monotonic()
        if self.method.lasts:
            self.deadline = self.expires
        else:
            self.deadline = min(self.expires, now + self.connection.limits.request_seconds + HANGS)
        compressed, data = self.assembly.whole.popleft()
        if len(data) <= LARGE:
            self.connection.front.room.asked = now
        self.connection.front.service.serve(self, self.method, data, self.head.encoding if compressed else None)

    @property
    def wants_more(self) -> bool:
        """Whether the caller's window may be opened."""
        return not self.ended and not self.over

    # ---- what goes

    def answer(self, parts: Sequence[Part]) -> None:
        if self.over:
            return
        size = sum(map(len, parts))
        try:
            gone = self.connection.out.answer(self, parts, size)
        except Refusal as refusal:  # too much of it is waiting already
            self.refuse(refusal)
            return
        self._close("OK", size, gone=gone)

    def send(self, parts: Sequence[Part]) -> None:
        """One message of several."""
        if self.over:
            return
        out = self.connection.out
        if not self._headed:
            self._headed = True
            out.head(self)
        try:
            out.message(self, parts, sum(map(len, parts)))
        except Refusal as refusal:
            self.refuse(refusal)

    def finish(self) -> None:
        """After the last message."""
        if self.over:
            return
        if not self._headed:
            self.connection.out.head(self)
        self._close("OK", 0, gone=self.connection.out.end(self, heads.OK_TRAILERS))

    def refuse(self, refusal: Refusal) -> None:
        if self.over:
            return
        self.give_up()
        code = refusal.grpc_code
        self.connection.out.refuse(self, code, refusal.message, headed=self._headed)
        self._close(STATUS[code], 0, gone=True)

    def _close(self, status: str, size: int, *, gone: bool) -> None:
        self.over = True
        if not self.ended and gone:  # so that the caller sends no more
            self.connection.out.put(f.reset(self.id, f.NO_ERROR))
        self.assembly.whole.clear()
        self.connection.give_back(self._charged)
        self._charged = 0
        if gone:
            self.connection.closed(self)
        self._note(status, size)

    def _note(self, status: str, size: int) -> None:
        self.connection.front.note(self.connection.peer, self.head, self.method.name, status, size, self)
        self.ticket = None

    def sent(self) -> None:
        """The rest of the answer has gone."""
        if self.over:
            if not self.ended:
                self.connection.out.put(f.reset(self.id, f.NO_ERROR))
            self.connection.closed(self)

    # ---- what ends it early

    def give_up(self) -> None:
        if self.ticket is not None:
            self.ticket.give_up()

    def cancel(self) -> None:
        """The caller is gone, or no longer interested."""
        self.connection.out.forget(self)
        if self.over:
            self.connection.closed(self)
            return
        self.give_up()
        self.ended = True
        self._close("CANCELLED", 0, gone=True)

    def check(self, now: float, callers: int) -> None:
        """Called by the sweep: `callers` share the connection, and so its pace."""
        if self.over:
            return
        limits = self.connection.limits
        if self.expires < now:
            self.refuse(DeadlinePassed("the deadline of the call passed"))
        elif self.deadline < now:
            late = DeadlinePassed("no answer within the time limit")
            self.refuse(late if self.ended else TooSlow("the message did not arrive in time"))
        elif not self.ended and self._lags(now - limits.slow_seconds, limits.body_rate / callers):
            self.refuse(TooSlow("the message did not arrive in time"))

    def _lags(self, until: float, rate: float) -> bool:
        return self._charged - COST < rate * (until - self.opened)
