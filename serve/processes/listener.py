"""Listening on a port, and its end without a lost caller.

Closing a listening socket resets the connections that the kernel has accepted and the process has not. However short
the moment between the last accept and the close, a busy machine may put a caller into it. So new ones are turned away
first: on Linux by a packet filter on the socket that drops first packets (SYN) and nothing else. Their callers' kernels
try again after a second and are told that nobody listens.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import sys
from collections.abc import Iterator

from calibrant.errors import ConfigError

_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
# Instructions of the kernel's packet filter: code, jump if true, jump if false, operand. The packet begins with its
# TCP header, whose byte 13 holds the flags: SYN 0x02, ACK 0x10.
_DROP_FIRST_PACKETS = (
    (0x30, 0, 0, 13),  # load the byte
    (0x54, 0, 0, 0x12),  # and SYN | ACK
    (0x15, 0, 1, 0x02),  # SYN alone?
    (0x06, 0, 0, 0),  # then keep nothing
    (0x06, 0, 0, 0xFFFFFFFF),  # else all
)


def bind(host: str, port: int, *, shared: bool = False, option: str = "--port") -> socket.socket:
    """A socket on the first address of the host, not listening yet; port 0 is a free one.

    `shared`: with other sockets of this program that are bound alike.
    """
    with _said(host, port, option):
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        try:
            if sys.platform != "win32":
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            found.bind(address)
        except BaseException:
            found.close()
            raise
        return found


def listen(host: str, port: int, *, shared: bool = False, option: str = "--port") -> socket.socket:
    """A socket that takes connections."""
    found = bind(host, port, shared=shared, option=option)
    with _said(host, port, option):
        found.listen(1024)
        found.setblocking(False)
    return found


def probe(host: str, port: int, *, option: str = "--port") -> int:
    """The port, free a moment ago: for a library that is to bind it itself."""
    with bind(host, port, option=option) as found:
        return int(found.getsockname()[1])


def cannot_listen(what: str, host: str, port: int, option: str = "--port") -> ConfigError:
    """`what` the system says, with the option that would help."""
    front, fix = "", None
    if option == "--grpc-port":
        front, fix = " for gRPC", f"choose another {option}"
    elif "in use" in what:
        fix = f"choose another with {option}, or {option} 0 for a free one"
    return ConfigError(f"cannot listen{front} ({what})", where=f"{host}:{port}", fix=fix)


@contextlib.contextmanager
def _said(host: str, port: int, option: str) -> Iterator[None]:
    try:
        yield
    except (OSError, OverflowError, UnicodeError) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise cannot_listen(what, host, port, option) from None


def turn_away(listener: socket.socket) -> None:
    """No new connections; those that were begun can be accepted. Elsewhere than on Linux, nothing."""
    if not sys.platform.startswith("linux"):
        return
    program = b"".join(struct.pack("HBBI", *step) for step in _DROP_FIRST_PACKETS)
    buffer = ctypes.create_string_buffer(program, len(program))
    with contextlib.suppress(OSError):
        listener.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(_DROP_FIRST_PACKETS), ctypes.addressof(buffer))
        )


def welcome(listener: socket.socket) -> None:
    """Undoes `turn_away`, which outlives the process that asked for it where another one holds the socket too."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):  # usually there is no filter
            listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
