"""The process that reads large JSON, seen from the server: started when first asked for, one request at a time."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from calibrant.serve.protocol.body import parse
from calibrant.serve.protocol.errors import DeadlinePassed, Refusal, TooLarge
from calibrant.serve.protocol.json_reader import ANSWERED, ASKED, described, received
from calibrant.serve.protocol.request import InferRequest, Target

log = logging.getLogger(__name__)

SECONDS = 30.0  # for one request
_ALIGN = 16


class JsonProcess:
    """`read` is called in a thread of `pool`, which has one: who asks next waits for it."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1, "json")
        self.waiting = 0  # requests, counted by who hands them over
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._alone = os.name != "posix"  # no such process can be had
        self._closing = threading.Lock()

    def read(self, body: memoryview, length: int | None, target: Target) -> InferRequest:
        """As `parse`, which does it here where no process can be started."""
        size = len(body) if length is None else length
        if size <= len(body) and (connected := self._connected()) is not None:
            body, length = self._as_binary(connected, body, size, target)
        return parse(body, length, target)

    @property
    def started(self) -> bool:
        return self._process is not None

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
        self._drop()

    def _connected(self) -> socket.socket | None:
        if self._process is not None and self._process.poll() is not None:  # killed by somebody
            self._drop()
        if self._socket is None and not self._alone:
            ours, theirs = socket.socketpair()
            command = [sys.executable, "-P", "-m", "calibrant.serve.protocol.json_reader", str(theirs.fileno())]
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            try:
                self._process = subprocess.Popen(
                    command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment
                )
            except OSError as error:
                log.warning("large JSON is read in this process, since none can be started for it: %s", error)
                self._alone = True
                ours.close()
                return None
            finally:
                theirs.close()
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # the calls stay single and blocking ones
                ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(SECONDS), 0))
            self._socket = ours
        return self._socket

    def _as_binary(self, s: socket.socket, body: memoryview, size: int, target: Target) -> tuple[memoryview, int]:
        about = described(target)
        try:
            s.sendall(ASKED.pack(len(about), size, len(body)) + about)
            s.sendall(body)
            status, head, tensors, last = ANSWERED.unpack(received(s, ANSWERED.size))
            shift = -head % _ALIGN  # so that the tensors lie on an aligned address
            answer = received(s, head + tensors, shift)
        except BlockingIOError:  # the time is over
            self._drop()
            raise DeadlinePassed(f"the JSON was not read within {SECONDS:g} s; send binary tensors") from None
        except (OSError, EOFError):
            self._drop()
            raise TooLarge("the JSON takes more memory to read than there is; send binary tensors") from None
        if last:
            self._drop()
        if status:
            raise Refusal.with_status(status, bytes(answer).decode())
        return answer, head

    def _drop(self) -> None:
        with self._closing:  # the loop closes, the thread reads
            s, self._socket = self._socket, None
            process, self._process = self._process, None
        if s is not None:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for an answer
            s.close()
        if process is not None:
            process.kill()
            process.wait()
