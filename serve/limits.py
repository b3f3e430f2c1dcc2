"""What one caller may take of the server, and how long it may take about it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from calibrant.errors import ConfigError

THIS_MACHINE = ("127.0.0.0/8", "::1/128")  # addresses from which many callers may come: a proxy, a test

MAY_BE_0 = ("slow_seconds", "body_rate", "drain_seconds")  # which asks for nothing, or waits for nothing


@dataclass(frozen=True)
class Limits:
    max_body: int = 64 << 20  # bytes on the wire
    max_decompressed: int = 128 << 20  # bytes after Content-Encoding
    max_buffered: int = 1 << 30  # bytes of all bodies in memory at once
    max_rows: int = 1024  # of one request
    max_images: int = 32  # of one POST /predict
    max_pixels: int = 50_000_000  # of one picture, checked before it is decoded
    max_header: int = 32 << 10  # bytes of the request line and headers
    max_connections: int = 4096
    peer_connections: int = 256  # of one address
    peer_share: float = 0.25  # of max_buffered, for the bodies of one address
    header_seconds: float = 10.0  # from the first byte of a request to the end of its headers
    body_seconds: float = 60.0  # from there to the end of its body
    slow_seconds: float = 10.0  # after which a body must have come at least
    body_rate: float = 16 << 10  # at so many bytes a second
    idle_seconds: float = 75.0  # between requests of a connection
    write_seconds: float = 60.0  # for a caller to take its answer
    max_wait: float = 5.0  # predicted seconds in the queue, above which a request is refused with 503
    request_seconds: float = 30.0  # from the end of the body to the answer, else 504
    drain_seconds: float = 20.0  # for what is under way when the server is told to stop

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, name = getattr(self, field.name), field.name
            fits = value > 0 or (value == 0 and name in MAY_BE_0)
            if not fits or (name == "peer_share" and value > 1):
                least = "0 or more" if name in MAY_BE_0 else "above 0"
                most = " and at most 1" if name == "peer_share" else ""
                raise ConfigError(f"{name} = {value:g}: it has to be {least}{most}", where="[limits]")
