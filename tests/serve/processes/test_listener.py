from __future__ import annotations

import socket
import sys

import pytest

from calibrant.serve.processes.listener import turn_away, welcome


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a packet filter of Linux")
def test_who_is_in_the_queue_is_served_and_nobody_joins_it() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        with socket.create_connection(listener.getsockname(), timeout=60) as early:
            turn_away(listener)
            late = socket.socket()
            late.settimeout(0.3)
            with late, pytest.raises(TimeoutError):
                late.connect(listener.getsockname())
            served, _ = listener.accept()
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()
            with served:
                early.sendall(b"hello")  # packets of connections that are there pass
                assert served.recv(5) == b"hello"
        address = listener.getsockname()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=60)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a packet filter of Linux")
def test_a_successor_on_the_same_socket_is_reached() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        turn_away(listener)
        welcome(listener)
        with socket.create_connection(listener.getsockname(), timeout=60) as caller:
            served, _ = listener.accept()
            with served:
                caller.sendall(b"hello")
                assert served.recv(5) == b"hello"
