"""Stands before Streamlit's web application: refuses foreign names, and tells the browser what a page may do.

Streamlit checks the name of the server for the socket only, and its `st.App` cannot keep the exit code and the signals
that `calibrant dashboard` promises. So the class that every Streamlit server hands its application to, uvicorn's
`Config`, is the place where ours is put in front. The start looks at a real answer (`is_guarded`): a Streamlit that
serves in another way is not served at all.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_CLOSED = 1008  # of a WebSocket: against the rules


def content_policy(inline_scripts: Iterable[str] = ()) -> str:
    """What a page may load: its own server's files and nothing else. It may not stand inside another page.

    Vega compiles the expressions of a chart and Streamlit's styles are written by its scripts, so 'unsafe-eval' and
    inline styles stay; a script inside a page runs only if it is one of these, by hash.
    """
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in inline_scripts]
    scripts = " ".join(["'self'", "'unsafe-eval'", *(f"'sha256-{digest}'" for digest in digests)])
    rules = {
        "default-src": "'self'", "script-src": scripts, "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:", "font-src": "'self' data:", "media-src": "'self' blob:",
        "connect-src": "'self'", "worker-src": "'self' blob:", "frame-src": "'none'", "object-src": "'none'",
        "base-uri": "'self'", "form-action": "'self'", "frame-ancestors": "'none'",
    }  # fmt: skip
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def headers(inline_scripts: Iterable[str] = ()) -> dict[str, str]:
    return {
        "content-security-policy": content_policy(inline_scripts),
        "x-frame-options": "DENY",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }


def host_of(name: str) -> str | None:
    """The name in a Host header, without its port; None where that is no name."""
    try:
        parts = urlsplit(f"//{name}")
        _ = parts.port  # raises where it is no number
        plain = not (parts.username or parts.password or parts.path or parts.query or parts.fragment)
        found = parts.hostname if plain else None
    except ValueError:
        return None
    return None if found is None else found.lower().rstrip(".")


class Guard:
    """The application behind the check of its name, its answers with `headers`."""

    def __init__(self, app: App, names: Sequence[str], headers: Mapping[str, str]) -> None:
        self.app = app
        self.names = frozenset(name.lower().rstrip(".") for name in names)
        self.headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        asked = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(asked) != 1 or host_of(asked[0]) not in self.names:
            await self._refuse(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                ours = {name for name, _ in self.headers}
                kept = [(n, v) for n, v in message.get("headers", ()) if n.lower() not in ours]
                message = {**message, "headers": [*kept, *self.headers]}
            await send(message)

        await self.app(scope, receive, guarded)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": _CLOSED})  # before it is accepted: 403
            return
        body = b"This dashboard does not answer under that name. Start it with --allow-host NAME to open it to others."
        kind = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 403, "headers": [*kind, *self.headers]})
        await send({"type": "http.response.body", "body": body})


def inline_scripts() -> tuple[str, ...]:
    """Of the page that Streamlit brings."""
    import streamlit

    page = Path(streamlit.__file__).parent / "static" / "index.html"
    return tuple(_INLINE.findall(page.read_text(encoding="utf-8")))


def stand_before_streamlit(names: Sequence[str]) -> None:
    """From now on every application that uvicorn serves in this process is behind the guard."""
    import uvicorn

    wanted = headers(inline_scripts())

    class Config(uvicorn.Config):
        def load(self) -> None:
            super().load()
            self.loaded_app = Guard(self.loaded_app, names, wanted)

    uvicorn.Config = Config  # type: ignore[misc]


def is_guarded(policy: str | None) -> bool:
    """Whether an answer with this Content-Security-Policy went through the guard."""
    return "frame-ancestors 'none'" in (policy or "")
