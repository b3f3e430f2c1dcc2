from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path

import pytest

from calibrant.serve.config import ModelSpec, ServeConfig
from calibrant.serve.engine import huge_pages
from calibrant.serve.processes.server import Server


def _can() -> bool:
    """Whether this system moves memory to huge pages when asked, tried on memory of our own."""
    if sys.platform != "linux":
        return False
    block = mmap.mmap(-1, 4 * huge_pages.HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.write(bytes(len(block)))
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    at = -(-_address(block) // huge_pages.HUGE) * huge_pages.HUGE
    return madvise(at, huge_pages.HUGE, 25) == 0


def _address(block: mmap.mmap) -> int:
    view = (ctypes.c_char * 1).from_buffer(block)
    address = ctypes.addressof(view)
    del view
    return address


@pytest.mark.skipif(not _can(), reason="the kernel gives no huge pages on request (before Linux 6.1, or set to never)")
def test_memory_that_is_there_moves_and_keeps_what_it_holds() -> None:
    block = mmap.mmap(-1, 8 * huge_pages.HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    content = bytes(range(256)) * (len(block) // 256)
    block.write(content)
    assert huge_pages.collapse() >= 7 * huge_pages.HUGE  # its ends need not be aligned
    assert block[:] == content
    assert _on_huge(block) >= 7 * huge_pages.HUGE


@pytest.mark.skipif(not _can(), reason="the kernel gives no huge pages on request (before Linux 6.1, or set to never)")
def test_memory_in_use_here_and_there_stays_as_it_is() -> None:
    """Else what a heap has between its pieces would count as the server's."""
    block = mmap.mmap(-1, 8 * huge_pages.HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, len(block), 2 * mmap.PAGESIZE):
        block[at] = 1
    huge_pages.collapse()
    assert _on_huge(block) == 0


def _on_huge(block: mmap.mmap) -> int:
    address, inside = _address(block), False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split()[0]
        if "-" in head:
            low, high = (int(x, 16) for x in head.split("-"))
            inside = low <= address < high
        elif inside and head == "AnonHugePages:":
            return int(line.split()[1]) << 10
    return 0


def test_only_private_memory_without_a_file_is_touched() -> None:
    maps = """\
5600-5700 rw-p 00000000 00:00 0                          [heap]
7000-7100 r--p 00000000 00:00 0
7100-7200 rw-p 00001000 08:01 42                         /usr/lib/a b.so
7200-7300 rw-p 00000000 00:00 0
7300-7400 rw-p 00000000 00:00 0                          [stack]
7400-7500 rw-s 00000000 00:01 7                          /dev/zero (deleted)
7500-7600 rw-p 00000000 00:00 0                          [anon:arena]
"""
    assert list(huge_pages._private(maps)) == [(0x5600, 0x5700), (0x7200, 0x7300), (0x7500, 0x7600)]


def test_where_the_system_does_not_say_what_there_is_nothing_happens(tmp_path: Path) -> None:
    assert huge_pages.collapse(tmp_path / "maps") == 0


@pytest.mark.parametrize("wanted", [True, False])
def test_a_server_asks_once_for_each_model_unless_told_not_to(
    wanted: bool, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[None] = []
    monkeypatch.setattr(huge_pages, "collapse", lambda: calls.append(None))
    server = Server(ServeConfig((ModelSpec(model_file),), huge_pages=wanted))
    server.load_models()
    server.repository.all()[0].batcher.close()
    server.inference.close()
    assert len(calls) == wanted
