"""What stands in the header blocks of calls and of their answers.

Callers send the same block again and again: where it refers to their table only, and changes nothing in it, it is
known by its bytes. Answers are written without that table, so their blocks are constants.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

import hpack

from calibrant.serve.grpc.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, ConnectionFault

MOST_BLOCKS = 256  # that are known by their bytes
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_PSEUDO = (b":method", b":scheme", b":path", b":authority")
_OF_CONNECTIONS = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
ENCODINGS = "identity,deflate,gzip"
LONGEST_MESSAGE = 1500  # characters of a status message


class MalformedHead(Exception):
    """A head that no HTTP/2 request has."""


@dataclass(frozen=True, slots=True)
class CallHead:
    """What a call says before its messages."""

    path: str
    http_status: int = 200  # of the answer, where this is no gRPC call
    encoding: str = "identity"  # of messages that say that they are compressed
    timeout: float | None = None  # seconds
    authorization: bytes = b""
    authority: bytes = b""  # what the caller calls this server
    request_id: bytes = b""
    traceparent: bytes = b""
    size: int = 0  # of its fields as HTTP/2 counts them


class HeadReader:
    """The decoder of one connection, whose table must see every block in turn."""

    def __init__(self, longest: int) -> None:
        """`longest`: bytes of all fields of a block; more is refused, and four times as many end the connection."""
        self._decoder = hpack.Decoder(max_header_list_size=4 * longest)
        self._known: dict[bytes, CallHead] = {}

    def read(self, block: bytes) -> CallHead:
        known = self._known.get(block)
        return known if known is not None else self._decode(block)

    def skip(self, block: bytes) -> None:
        """Trailers, and heads of calls that are not taken."""
        if block not in self._known:
            self._fields(block)

    def _decode(self, block: bytes) -> CallHead:
        head = _head(self._fields(block))
        # Bytes above 127 are references to the table, each of one field; 255 is the first byte of a longer one.
        if block and min(block) > 127 and 255 not in block:
            if len(self._known) >= MOST_BLOCKS:
                self._known.clear()
            self._known[block] = head
        return head

    def _fields(self, block: bytes) -> list[tuple[bytes, bytes]]:
        if not (block and min(block) > 127 and 255 not in block):
            self._known.clear()  # the table may be another one from here on
        try:
            return [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        except hpack.OversizedHeaderListError:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "the head of a call is too long") from None
        except hpack.HPACKError:
            raise ConnectionFault(COMPRESSION_ERROR, "a header block cannot be decoded") from None


def _head(fields: list[tuple[bytes, bytes]]) -> CallHead:
    pseudo: dict[bytes, bytes] = {}
    found: dict[bytes, bytes] = {}
    size = 0
    for name, value in fields:
        size += len(name) + len(value) + 32
        if name[:1] == b":":
            if found or name not in _PSEUDO or name in pseudo:
                raise MalformedHead(name)
            pseudo[name] = value
        else:
            if name != name.lower() or name in _OF_CONNECTIONS or (name == b"te" and value != b"trailers"):
                raise MalformedHead(name)
            found[name] = value
    if not all(pseudo.get(name) for name in (b":method", b":scheme", b":path")):
        raise MalformedHead("without method, scheme or path")
    kind = found.get(b"content-type", b"")
    status = 405 if pseudo[b":method"] != b"POST" else 415 if not kind.startswith(b"application/grpc") else 200
    return CallHead(
        pseudo[b":path"].decode("latin-1"),
        status,
        found.get(b"grpc-encoding", b"identity").decode("latin-1"),
        _timeout(found.get(b"grpc-timeout")),
        found.get(b"authorization", b""),
        pseudo.get(b":authority") or found.get(b"host", b""),
        found.get(b"x-request-id", b""),
        found.get(b"traceparent", b""),
        size,
    )


def _timeout(value: bytes | None) -> float | None:
    """One that cannot be read is no reason to refuse the call: the caller keeps its deadline itself."""
    match = None if value is None else _TIMEOUT.fullmatch(value)
    return None if match is None else int(match[1]) * _UNITS[match[2]]


def _field(name: bytes, value: bytes) -> bytes:
    """Literal, never put into the caller's table."""
    return b"\x00" + _length(len(name)) + name + _length(len(value)) + value


def _length(size: int) -> bytes:
    """Of 7 bits and as many more as it needs (RFC 7541, 5.1)."""
    if size < 127:
        return bytes([size])
    out, size = bytearray([127]), size - 127
    while size >= 128:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes([*out, size])


_STATUS_200 = b"\x88"  # the eighth entry of the table that every HTTP/2 endpoint has
_KIND = _field(b"content-type", b"application/grpc")
ANSWER = _STATUS_200 + _KIND + _field(b"grpc-accept-encoding", ENCODINGS.encode())
OK_TRAILERS = _field(b"grpc-status", b"0")


def trailers(code: int, message: str) -> bytes:
    """What ends a call, where it is not OK."""
    text = quote(message[:LONGEST_MESSAGE], safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~").encode()
    return _field(b"grpc-status", b"%d" % code) + (_field(b"grpc-message", text) if text else b"")


def trailers_only(code: int, message: str) -> bytes:
    """A refusal before any answer: head and trailers in one block."""
    return ANSWER + trailers(code, message)


def no_call(status: int, message: str) -> bytes:
    """The answer to an HTTP/2 request that is no gRPC call, as gRPC's own servers give it."""
    return _field(b":status", b"%d" % status) + _KIND + trailers(2, message)
