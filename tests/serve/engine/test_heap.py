"""One heap for all threads of a server."""

import os
import platform
import subprocess
import sys

import pytest

# Where a block lies that a thread asks for: in the heap of the process, or in one of the thread's own.
PROGRAM = """
import ctypes, sys, threading
from calibrant.serve.engine import heap

malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
malloc(1 << 10)
shared = heap.share() if sys.argv[1] == "share" else None
found = []
thread = threading.Thread(target=lambda: found.append(malloc(40_000)))
thread.start()
thread.join()
line = next(line for line in open("/proc/self/maps") if "[heap]" in line)
low, high = (int(at, 16) for at in line.split()[0].split("-"))
print(shared, low <= found[0] < high)
"""

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the wish is glibc's")


def threads_block(how: str, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    return subprocess.check_output([sys.executable, "-c", PROGRAM, how], text=True, env={**kept, **environment}).strip()


@glibc
def test_threads_take_from_the_heap_of_the_process_once_it_is_shared() -> None:
    assert threads_block("share") == "True True"
    assert threads_block("leave") == "None False"


@glibc
def test_an_operators_own_setting_stays() -> None:
    assert threads_block("share", MALLOC_ARENA_MAX="8") == "False False"
