"""HTTP/2's frames (RFC 9113): their head of nine bytes, and the few that a server sends by itself."""

from __future__ import annotations

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, WITH_PRIORITY = 1, 1, 4, 8, 32  # flags
ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = 2, 3, 4, 5, 6
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 5, 6, 7, 8, 9, 11

DEFAULT_WINDOW = 65535  # of a connection and of a stream where nothing else is said
SMALLEST_FRAME, LARGEST_FRAME = 1 << 14, (1 << 24) - 1  # that MAX_FRAME_SIZE may name
FIRST_WINDOW = 16 << 20  # of a stream here: what a caller may send of a message before we say more
LARGEST_WINDOW = LAST_STREAM = (1 << 31) - 1

HEAD = struct.Struct(">IBI")  # length << 8 | kind, flags, stream
HEAD_SIZE = HEAD.size
_SETTING, _WORD = struct.Struct(">HI"), struct.Struct(">I")


class ConnectionFault(Exception):
    """What ends a connection: the bytes that follow cannot be made sense of, or are not worth it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class StreamFault(Exception):
    """What ends one stream, and leaves the others."""

    def __init__(self, stream: int, code: int) -> None:
        super().__init__(f"stream {stream}: error {code}")
        self.stream, self.code = stream, code


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*item) for item in values.items()))


def read_settings(payload: memoryview) -> list[tuple[int, int]]:
    if len(payload) % _SETTING.size:
        raise ConnectionFault(FRAME_SIZE_ERROR, "SETTINGS of a length that is no multiple of 6")
    return [(key, value) for key, value in _SETTING.iter_unpack(payload)]


def window_update(stream: int, size: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, _WORD.pack(size))


def reset(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, _WORD.pack(code))


def goaway(last: int, code: int, why: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code) + why.encode()[:256])


def word(payload: memoryview) -> int:
    """A number of 31 bits, which is all that RST_STREAM and WINDOW_UPDATE hold."""
    if len(payload) != _WORD.size:
        raise ConnectionFault(FRAME_SIZE_ERROR, "a frame of the wrong length")
    return int(_WORD.unpack(payload)[0]) & LAST_STREAM


def unpadded(payload: memoryview, flags: int) -> memoryview:
    """The part of a HEADERS frame that is the header block."""
    pad = 0
    if flags & PADDED:
        if not len(payload):
            raise ConnectionFault(FRAME_SIZE_ERROR, "a padded frame without the length of its padding")
        pad, payload = payload[0], payload[1:]
    if flags & WITH_PRIORITY:
        if len(payload) < 5:
            raise ConnectionFault(FRAME_SIZE_ERROR, "a frame too short for its priority")
        payload = payload[5:]
    if pad > len(payload):
        raise ConnectionFault(PROTOCOL_ERROR, "more padding than there is frame")
    return payload[: len(payload) - pad]
