"""Who may ask, and the line that says who did."""

from __future__ import annotations

import hmac
import json
import logging
import time
from dataclasses import dataclass

from calibrant.serve.protocol.errors import Unauthorized

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Access:
    token: str | None = None  # that callers have to show
    logged: bool = False  # a JSON line for every request

    def authorise(self, authorization: bytes, *, send: str) -> None:
        """`send`: where the transport carries the token."""
        if self.token is not None and not _bears(authorization, self.token):
            raise Unauthorized(f"a token is needed: send the {send}: Bearer TOKEN")

    def note(self, peer: str, method: str, path: str, status: int | str, size: int, start: float) -> None:
        """`start`: time.monotonic when the request was whole."""
        if self.logged:
            took = round(1e3 * (time.monotonic() - start), 3)
            line = {"peer": peer, "method": method, "path": path, "status": status, "bytes": size, "ms": took}
            log.info(json.dumps(line))


def _bears(authorization: bytes, token: str) -> bool:
    """Whether the header's value is this bearer token."""
    scheme, _, given = authorization.partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), token.encode())
