"""Frames about streams and the connection, which bring no call nearer to its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from calibrant.serve.grpc import frames as f
from calibrant.serve.grpc.credit import OF_A_RESET, OF_A_WORD, OF_SETTINGS
from calibrant.serve.grpc.frames import ConnectionFault, StreamFault

if TYPE_CHECKING:
    from calibrant.serve.grpc.connection import Http2Connection


def _on_priority(connection: Http2Connection, flags: int, stream: int, payload: memoryview) -> None:
    connection.credit.spend(OF_A_WORD, connection.out)


def _on_reset(connection: Http2Connection, flags: int, stream: int, payload: memoryview) -> None:
    f.word(payload)
    connection.credit.spend(OF_A_RESET, connection.out)
    _check_opened(connection, stream)
    call = connection.calls.get(stream)
    if call is not None:
        call.cancel()


def _on_settings(connection: Http2Connection, flags: int, stream: int, payload: memoryview) -> None:
    if stream or (flags & f.ACK and len(payload)):
        raise ConnectionFault(f.PROTOCOL_ERROR if stream else f.FRAME_SIZE_ERROR, "SETTINGS are wrong")
    connection.credit.spend(OF_SETTINGS + len(payload) // 6, connection.out)
    if flags & f.ACK:
        return
    for key, value in f.read_settings(payload):
        if key == f.INITIAL_WINDOW_SIZE:
            if value > f.LARGEST_WINDOW:
                raise ConnectionFault(f.FLOW_CONTROL_ERROR, "a window is larger than HTTP/2 has them")
            connection.out.initial = value
        elif key == f.MAX_FRAME_SIZE:
            if not f.SMALLEST_FRAME <= value <= f.LARGEST_FRAME:
                raise ConnectionFault(f.PROTOCOL_ERROR, "frames of a size that HTTP/2 does not have")
            connection.out.frame_size = value
        elif key == f.ENABLE_PUSH and value > 1:
            raise ConnectionFault(f.PROTOCOL_ERROR, "SETTINGS are wrong")
    connection.out.put(f.frame(f.SETTINGS, f.ACK, 0))
    connection.out.pump()


def _on_ping(connection: Http2Connection, flags: int, stream: int, payload: memoryview) -> None:
    if stream or len(payload) != 8:
        raise ConnectionFault(f.PROTOCOL_ERROR if stream else f.FRAME_SIZE_ERROR, "PING is wrong")
    connection.credit.spend(OF_A_WORD, connection.out)
    if not flags & f.ACK:
        connection.out.put(f.frame(f.PING, f.ACK, 0, bytes(payload)))


def _on_goaway(connection: Http2Connection, flags: int, stream: int, payload: memoryview) -> None:
    """The caller opens no more streams; it closes the connection itself."""
    connection.credit.spend(OF_A_WORD, connection.out)


def _on_window_update(connection: Http2Connection, flags: int, stream: int, payload: memoryview) -> None:
    more = f.word(payload)
    out = connection.out
    connection.credit.spend(1, out)
    if not stream:
        out.window += more
        if not more or out.window > f.LARGEST_WINDOW:
            raise ConnectionFault(f.FLOW_CONTROL_ERROR if more else f.PROTOCOL_ERROR, "WINDOW_UPDATE is wrong")
    else:
        _check_opened(connection, stream)
        call = connection.calls.get(stream)
        if call is None:
            return
        call.window += more
        if not more or out.initial + call.window > f.LARGEST_WINDOW:
            call.cancel()
            raise StreamFault(stream, f.FLOW_CONTROL_ERROR if more else f.PROTOCOL_ERROR)
    out.pump()


def _check_opened(connection: Http2Connection, stream: int) -> None:
    if not stream or stream > connection.last:
        raise ConnectionFault(f.PROTOCOL_ERROR, "a frame about a stream that was never opened")


CONTROL: dict[int, Callable[[Http2Connection, int, int, memoryview], None]] = {
    f.PRIORITY: _on_priority, f.RST_STREAM: _on_reset, f.SETTINGS: _on_settings, f.PING: _on_ping,
    f.GOAWAY: _on_goaway, f.WINDOW_UPDATE: _on_window_update,
}  # fmt: skip
