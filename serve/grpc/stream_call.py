"""ModelStreamInfer: a call with any number of messages, and one answer to each."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from calibrant.serve.grpc import wire
from calibrant.serve.grpc.assembly import PREFIX
from calibrant.serve.grpc.call import STATUS, Call, Part
from calibrant.serve.grpc.heads import CallHead
from calibrant.serve.inference import Ticket
from calibrant.serve.protocol.errors import Refusal

if TYPE_CHECKING:
    from calibrant.serve.grpc.connection import Http2Connection
    from calibrant.serve.grpc.service import Method

MOST_TURNS = 32  # messages of one stream that are worked on at once


class StreamCall(Call):
    """A call with any number of messages, each answered in its turn while those behind it are worked on."""

    __slots__ = ("_began", "_taking", "_turns")

    def __init__(self, connection: Http2Connection, id_: int, head: CallHead, method: Method, token: str = "") -> None:
        super().__init__(connection, id_, head, method, token)
        self.deadline = self.expires  # of the call; a message has one of its own
        self._turns: deque[Turn] = deque()
        self._began = 0.0  # when the message began that is coming, 0 where none is
        self._taking = False

    def _look(self) -> None:
        if not self.assembly.partial:
            self._began = 0.0
        elif not self._began:
            self._began = time.monotonic()
        self._take_turns()

    def _take_turns(self) -> None:
        waiting = self.assembly.whole
        if self._taking:  # the answer came at once, and the loop below goes on
            return
        self._taking = True
        while waiting and len(self._turns) < MOST_TURNS and not self.over and not self.connection.out.waits(self):
            compressed, data = waiting.popleft()
            turn = Turn(self, PREFIX.size + len(data))
            self._turns.append(turn)
            self.connection.front.service.serve(turn, self.method, data, self.head.encoding if compressed else None)
        self._taking = False
        if self.ended and not (waiting or self._turns or self.over or self.connection.out.waits(self)):
            self.finish()

    def _said_all(self) -> None:
        self._take_turns()

    def advance(self) -> None:
        """A turn has its answer."""
        while self._turns and self._turns[0].parts and not self.over:
            turn = self._turns.popleft()
            self.send(turn.parts)
            if not self.over:
                self.connection.give_back(turn.size)
                self._charged -= turn.size
            size = sum(map(len, turn.parts))
            self.connection.front.note(self.connection.peer, self.head, self.method.name, turn.status, size, turn)
        self._take_turns()
        self.connection.open_window(self)

    def sent(self) -> None:
        super().sent()
        if not self.over:
            self._take_turns()
            self.connection.open_window(self)

    @property
    def wants_more(self) -> bool:
        return super().wants_more and not self.assembly.whole

    @property
    def rests(self) -> bool:
        return not (self._turns or self.assembly.whole or self.assembly.partial or self.ended)

    def give_up(self) -> None:
        for turn in self._turns:
            if turn.ticket is not None:
                turn.ticket.give_up()

    def _close(self, status: str, size: int, *, gone: bool) -> None:
        if not self.over:
            self._turns.clear()
        super()._close(status, size, gone=gone)

    def _note(self, status: str, size: int) -> None:
        if status != "OK":  # its messages were counted one by one
            super()._note(status, size)

    def _lags(self, until: float, rate: float) -> bool:
        return bool(self._began) and not self.assembly.whole and self.assembly.had < rate * (until - self._began)


class Turn:
    """One message of a stream, as what answers it sees it."""

    __slots__ = ("_call", "answered_by", "parts", "received", "size", "status", "ticket", "token")

    def __init__(self, call: StreamCall, size: int) -> None:
        self._call, self.size = call, size  # that the message takes of the room
        self.received, self.token = time.monotonic(), call.token
        self.parts: list[Part] = []  # of the answer
        self.status = "OK"
        self.ticket: Ticket | None = None
        self.answered_by: tuple[str, str] | None = None

    @property
    def expires(self) -> float:
        return self._call.expires

    @property
    def over(self) -> bool:
        return self._call.over

    def charge(self, size: int) -> None:
        self._call.charge(size)
        self.size += size

    def answer(self, parts: Sequence[Part]) -> None:
        """ModelStreamInferResponse: the answer is its second field."""
        self.parts = [*parts] if not self._call.method.wrapped else [wire.opening(2, sum(map(len, parts))), *parts]
        self._done()

    def send(self, parts: Sequence[Part]) -> None:
        self.answer(parts)

    def refuse(self, refusal: Refusal) -> None:
        """An error is a message, and the stream goes on; where there is no message for it, it ends."""
        if not self._call.method.wrapped:
            self._call.refuse(refusal)
            return
        self.status = STATUS[refusal.grpc_code]
        self.parts = [wire.field(1, refusal.message) + wire.message(2, b"")]
        self._done()

    def _done(self) -> None:
        self._call.advance()
