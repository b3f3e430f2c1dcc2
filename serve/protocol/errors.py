"""An answer that is an error: the HTTP status, the text for `{"error": ...}`, and its gRPC twin."""

from __future__ import annotations

from typing import Any

from calibrant.errors import CalibrantError

# HTTP status -> gRPC status code number (grpc.StatusCode values), so that both fronts refuse alike.
GRPC_CODES = {
    400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 408: 4, 411: 3, 413: 3, 414: 3, 415: 3, 429: 8, 431: 3, 499: 1,
    500: 13, 501: 12, 503: 14, 504: 4,
}  # fmt: skip


class Refusal(Exception):
    """What is wrong, where and how to mend it, in a sentence that goes to the caller."""

    def __init__(
        self, status: int, message: str, *, retry_after: float | None = None, close: bool = False, busy: bool = False
    ) -> None:
        """`busy`: there is too much to do, not nobody to do it; HTTP says 503 to both."""
        super().__init__(message)
        self.status, self.message, self.retry_after, self.close, self.busy = status, message, retry_after, close, busy

    @property
    def grpc_code(self) -> int:
        return 8 if self.busy else GRPC_CODES.get(self.status, 13 if self.status >= 500 else 3)

    @classmethod
    def of(cls, error: Exception) -> Refusal:
        """A CalibrantError is the caller's mistake here: what the server itself got wrong was refused at its start."""
        if isinstance(error, Refusal):
            return error
        if isinstance(error, CalibrantError):
            return cls(400, str(error))
        return cls(500, f"internal error ({type(error).__name__}); the server's log has the details")


def bad(message: str) -> Refusal:
    return Refusal(400, message)


def kind(value: Any) -> str:
    """What JSON calls it."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def shown(value: Any) -> str:
    return cut(repr(value))


def cut(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
