"""What one caller may take of the server, and how long it may take about it."""

from __future__ import annotations

from dataclasses import dataclass

THIS_MACHINE = ("127.0.0.0/8", "::1/128")  # addresses from which many callers may come: a proxy, a test


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
