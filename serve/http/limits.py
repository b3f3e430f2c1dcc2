"""What one caller may take of the server, and how long it may take about it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from calibrant.serve.protocol.errors import BadInput, TooLarge, UnknownEncoding


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
    header_seconds: float = 10.0  # from the first byte of a request to the end of its headers
    body_seconds: float = 60.0  # from there to the end of its body
    idle_seconds: float = 75.0  # between requests of a connection
    write_seconds: float = 60.0  # for a caller to take its answer
    max_wait: float = 5.0  # predicted seconds in the queue, above which a request is refused with 503
    request_seconds: float = 30.0  # from the end of the body to the answer, else 504
    drain_seconds: float = 20.0  # for what is under way when the server is told to stop


def decompress(data: memoryview, encoding: str, limit: int) -> memoryview:
    """The body behind Content-Encoding gzip or deflate (zlib format), refused once it grows past the limit."""
    if encoding in ("", "identity"):
        return data
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise UnknownEncoding(f'Content-Encoding "{encoding[:40]}" is not known; use gzip, deflate or none')
    parts: list[bytes] = []
    size, left = 0, bytes(data)
    while True:
        # 32 + 15: the header tells gzip from zlib, so a deflate body that is really gzip is read too.
        engine = zlib.decompressobj(47)
        try:
            parts.append(engine.decompress(left, limit + 1 - size))
        except zlib.error as error:
            if not parts:
                raise BadInput(f"the body is not valid {encoding} ({error})") from None
            raise BadInput(f"{len(left)} bytes follow the end of the {encoding} body") from None
        size += len(parts[-1])
        if size > limit:
            raise TooLarge(f"the body is larger than {limit} bytes once decompressed")
        if not engine.eof:
            raise BadInput(f"the {encoding} body is cut off")
        left = engine.unused_data
        if not left:
            return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
        if left[:2] != b"\x1f\x8b":  # a gzip body may hold several members (RFC 1952)
            raise BadInput(f"{len(left)} bytes follow the end of the {encoding} body")


def compress(parts: list[bytes | memoryview], encoding: str) -> bytes:
    """Level 1: probabilities hardly compress, and the point is to please the caller's middleware."""
    engine = zlib.compressobj(1, zlib.DEFLATED, 31 if encoding == "gzip" else 15)
    return b"".join([*(engine.compress(part) for part in parts), engine.flush()])
