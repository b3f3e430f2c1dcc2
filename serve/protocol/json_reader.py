"""`python -m calibrant.serve.protocol.json_reader FD`: a server's large JSON, read in a process of its own.

A parser holds Python's lock for as long as it works, in whatever thread: 60 MB of `7,7,...` kept all other callers
waiting for two seconds and took a gigabyte. Here both are this process's. What it gives back is the same request with
its tensors as binary data, which the server reads in microseconds (`json_process`). It ends with its server.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import orjson

from calibrant.serve.own_memory import reserved_bytes, resident_bytes
from calibrant.serve.protocol.body import json_object, parse_message
from calibrant.serve.protocol.errors import Refusal
from calibrant.serve.protocol.request import Target
from calibrant.serve.protocol.tensors import TensorSpec, to_bytes

ASKED = struct.Struct("<QQQ")  # sizes: of what is known of the model, of the JSON, of the whole body
# Status (0: read), size of the JSON or of the refusal, of the tensors; whether the process ends with it.
ANSWERED = struct.Struct("<QQQ?")
MEMORY = 1 << 30  # bytes that one request may take, beside what the process has to begin with
KEPT = 256 << 20  # bytes in memory after a request, above which the process makes way for a new one
BINARY = "binary_data_size"


def described(target: Target) -> bytes:
    """What a request is checked against, to send."""
    return orjson.dumps(replace(target, plans={}))


def target_of(text: bytes) -> Target:
    found = orjson.loads(text)
    found["plans"] = {}
    for key in ("inputs", "outputs", "derived"):
        found[key] = {n: TensorSpec(**{**spec, "shape": tuple(spec["shape"])}) for n, spec in found[key].items()}
    return Target(**found)


def as_binary(body: memoryview, length: int, target: Target) -> tuple[bytes, list[bytes | memoryview]]:
    """The request's JSON with sizes in the place of its numbers, and the tensors; raises what is wrong with it."""
    message = json_object(body[:length])
    request, _ = parse_message(message, body[length:], target)
    tensors = []
    for entry in message["inputs"]:
        data = to_bytes(request.feeds[entry["name"]])
        entry.pop("data", None)
        entry["parameters"] = {**(entry.get("parameters") or {}), BINARY: len(data)}
        tensors.append(data)
    return orjson.dumps(message), tensors


def received(s: socket.socket, size: int, shift: int = 0) -> memoryview:
    """So many bytes, on an address that is `shift` behind one that is aligned as arrays are."""
    buffer, at = np.empty(shift + size, np.uint8).data[shift:], 0
    while at < size:
        got = s.recv_into(buffer[at:], size - at, socket.MSG_WAITALL)
        if not got:
            raise EOFError
        at += got
    return buffer


def answer(s: socket.socket) -> bool:
    """One request; whether there may be another."""
    about, length, size = ASKED.unpack(received(s, ASKED.size))
    target = target_of(bytes(received(s, about)))
    status, tensors = 0, list[bytes | memoryview]()
    try:
        head, tensors = as_binary(received(s, size), length, target)
    except MemoryError:
        status, head = 413, f"the JSON takes more than {MEMORY >> 20} MiB to read; send binary tensors".encode()
    except Exception as error:
        refusal = Refusal.of(error)
        status, head = refusal.status, refusal.message.encode()
    last = (resident_bytes() or 0) > KEPT
    s.sendall(ANSWERED.pack(status, len(head), sum(map(len, tensors)), last) + head)
    for data in tensors:
        s.sendall(data)
    return not last


def _modest() -> None:
    """Behind the server where there is not enough for both, and never more memory than agreed."""
    import resource

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # are for the server, whose end is ours
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(15)
    if (size := reserved_bytes()) is not None:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY,) * 2)


def main(arguments: Any = None) -> None:
    _modest()
    with socket.socket(fileno=int((arguments or sys.argv)[1])) as s, contextlib.suppress(EOFError, OSError):
        while answer(s):
            pass


if __name__ == "__main__":
    main()
