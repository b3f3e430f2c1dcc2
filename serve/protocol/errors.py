"""Answers that are errors, by name: what is wrong, and in one table what each transport calls it.

Refusal
 +- BadInput           a request that means nothing to the model, or cannot be read
 +- Unauthorized       no token, or another one
 +- Forbidden          not for callers from the network
 +- Misdirected        by a name that is not this server's
 +- NotFound           no such address, prediction or service
 |   +- ModelNotFound  no such model or version
 +- WrongMethod        the address takes another verb
 +- TooSlow            the request did not arrive in time
 +- TooLarge           more bytes, pictures or labels than are taken
 +- UnknownEncoding    a body of a kind that is not read
 +- HeadTooLarge       a request line and headers without end
 +- InternalError      our own mistake, or the model's
 +- NotReady           nobody to do it now
 |   +- PutAway        the model has to be loaded again first
 +- Overloaded         too much to do
 |   +- QueueFull      too much of it ahead of the model
 +- DeadlinePassed     no answer in time
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from calibrant.errors import CalibrantError

log = logging.getLogger(__name__)


class Refusal(Exception):
    """What is wrong, where and how to mend it, in a sentence that goes to the caller."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message, self.retry_after = message, retry_after

    @property
    def status(self) -> int:
        return CODES[type(self)].http

    @property
    def grpc_code(self) -> int:
        return CODES[type(self)].grpc

    @classmethod
    def of(cls, error: Exception) -> Refusal:
        """The error by its name, and a line in the log if it is our own mistake.

        A CalibrantError is the caller's mistake here: what the server itself got wrong was refused at its start.
        """
        if isinstance(error, Refusal):
            return error
        if isinstance(error, CalibrantError):
            return BadInput(str(error))
        log.error("a request failed", exc_info=error)
        return InternalError(f"internal error ({type(error).__name__}); the server's log has the details")

    @classmethod
    def with_status(cls, status: int, message: str) -> Refusal:
        """What another worker has answered over HTTP, by its name again."""
        return next((kind for kind, codes in CODES.items() if codes.http == status), InternalError)(message)


class BadInput(Refusal): ...


class Unauthorized(Refusal): ...


class Forbidden(Refusal): ...


class Misdirected(Refusal): ...


class NotFound(Refusal): ...


class ModelNotFound(NotFound): ...


class WrongMethod(Refusal):
    def __init__(self, message: str, *, allow: str = "") -> None:
        super().__init__(message)
        self.allow = allow


class TooSlow(Refusal): ...


class TooLarge(Refusal): ...


class UnknownEncoding(Refusal): ...


class HeadTooLarge(Refusal): ...


class InternalError(Refusal): ...


class NotReady(Refusal): ...


class PutAway(NotReady):
    """A model that has to be loaded again first; who can wait does so, others are told to come again."""

    def __init__(self, name: str, version: str) -> None:
        super().__init__(f'model "{name}" version {version} is being loaded again', retry_after=2)
        self.key = (name, version)


class Overloaded(Refusal): ...


class QueueFull(Overloaded): ...


class DeadlinePassed(Refusal): ...


@dataclass(frozen=True)
class Codes:
    http: int
    grpc: int  # a value of grpc.StatusCode


CODES: dict[type[Refusal], Codes] = {
    BadInput:        Codes(400, 3),   # INVALID_ARGUMENT
    Unauthorized:    Codes(401, 16),  # UNAUTHENTICATED
    Forbidden:       Codes(403, 7),   # PERMISSION_DENIED
    Misdirected:     Codes(421, 7),
    NotFound:        Codes(404, 5),   # NOT_FOUND
    ModelNotFound:   Codes(404, 5),
    WrongMethod:     Codes(405, 12),  # UNIMPLEMENTED
    TooSlow:         Codes(408, 4),   # DEADLINE_EXCEEDED
    TooLarge:        Codes(413, 3),
    UnknownEncoding: Codes(415, 12),
    HeadTooLarge:    Codes(431, 3),
    InternalError:   Codes(500, 13),  # INTERNAL
    NotReady:        Codes(503, 14),  # UNAVAILABLE
    PutAway:         Codes(503, 14),
    Overloaded:      Codes(503, 8),   # RESOURCE_EXHAUSTED
    QueueFull:       Codes(503, 8),
    DeadlinePassed:  Codes(504, 4),
}  # fmt: skip


def kind(value: Any) -> str:
    """What JSON calls it."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def shown(value: Any) -> str:
    return cut(repr(value))


def cut(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
