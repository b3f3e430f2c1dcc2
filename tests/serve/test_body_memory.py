from __future__ import annotations

import gc
import mmap
import threading

import numpy as np
import pytest

from calibrant.serve.body_memory import GIVEN_BACK, IDLE_SECONDS, LARGE, MOST_KEPT, BodyMemory


def _address(view: memoryview) -> int:
    return np.frombuffer(view, np.uint8).ctypes.data


def test_the_next_body_lies_where_the_last_one_lay_when_nobody_holds_a_part_of_that() -> None:
    memory = BodyMemory()
    first = memory.take(3 * LARGE)
    first[:3] = b"abc"
    where, part = _address(first), np.frombuffer(first[16:32], np.float32)
    assert where % 16 == 0
    del first
    second = memory.take(3 * LARGE)
    gc.collect()  # which must not take the block for forgotten
    assert _address(second) != where  # a part is still held
    del part
    third = memory.take(3 * LARGE - 7)
    assert (_address(third), len(third)) == (where, 3 * LARGE - 7)


def test_what_the_kernel_does_not_give_is_no_memory() -> None:
    with pytest.raises(MemoryError):
        BodyMemory().take(1 << 62)


def test_small_bodies_are_no_business_of_it() -> None:
    memory = BodyMemory()
    assert len(memory.take(LARGE - 1)) == LARGE - 1
    assert memory.kept == 0


def test_a_small_body_gets_no_block_that_is_full_of_a_large_one() -> None:
    memory = BodyMemory()
    where = _address(memory.take(10 * LARGE))
    assert memory.kept == 10 * LARGE
    small = memory.take(2 * LARGE)
    assert _address(small) != where
    assert memory.kept == 10 * LARGE


def test_what_is_kept_is_bounded() -> None:
    memory = BodyMemory()
    blocks = [memory.take(MOST_KEPT // 3) for _ in range(5)]
    assert memory.kept == 0
    blocks.clear()
    assert MOST_KEPT // 2 < memory.kept <= MOST_KEPT


def test_what_nobody_asks_for_is_given_back_in_parts() -> None:
    memory = BodyMemory()
    view = memory.take(3 * GIVEN_BACK + 5)
    view[:] = bytes([1]) * len(view)
    array = np.frombuffer(view, np.uint8)
    where = array.ctypes.data
    del view, array
    since = memory._free[0].since
    memory.sweep(since + IDLE_SECONDS - 1)
    assert memory.kept == 3 * GIVEN_BACK + 5
    kept = []
    while memory.kept:
        memory.sweep(since + IDLE_SECONDS + 1)
        kept.append(memory.kept)
        if len(kept) == 1:
            again = memory.take(3 * GIVEN_BACK + 5)
            assert _address(again) == where
            part = kept[0] // mmap.PAGESIZE * mmap.PAGESIZE
            assert set(again[part:]) == {0}  # the kernel has taken it
            assert again[part - 1] == 1
            del again
            since = memory._free[0].since
    assert len(kept) == 1 + 3
    assert all(a - b <= GIVEN_BACK + mmap.PAGESIZE for a, b in zip(kept[1:], kept[2:], strict=False))
    assert memory._free == []


@pytest.mark.parametrize("sizes", [(LARGE, 2 * LARGE), (3 * LARGE, 3 * LARGE + 1)])
def test_threads_never_share_a_block(sizes: tuple[int, ...]) -> None:
    memory, wrong = BodyMemory(), []

    def work(mark: int) -> None:
        rng = np.random.default_rng(mark)
        for _ in range(300):
            array = np.frombuffer(memory.take(int(rng.choice(sizes))), np.uint8)
            array[::4096] = mark
            memory.sweep()
            if not (array[::4096] == mark).all():
                wrong.append(mark)
            del array

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert wrong == []
    assert 0 < memory.kept <= 4 * max(sizes)
