"""Bodies behind Content-Encoding, in and out."""

from __future__ import annotations

import zlib

from calibrant.serve.protocol.errors import BadInput, TooLarge, UnknownEncoding


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
