from __future__ import annotations

import random

import numpy as np
import pytest

from calibrant.serve.grpc.assembly import Assembly
from calibrant.serve.protocol.errors import BadInput, Overloaded


def _wire(data: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + len(data).to_bytes(4, "big") + data


def test_messages_are_the_same_in_whatever_pieces_they_come() -> None:
    dice = random.Random(3)
    sent = [(dice.random() < 0.5, dice.randbytes(dice.choice((0, 1, 4, 5, 300, 70_000)))) for _ in range(60)]
    sent.append((False, dice.randbytes(3 << 20)))  # of which the first part is moved
    whole = b"".join(_wire(data, flag) for flag, data in sent)
    for most in (1 << 30, 50_000, 7):
        assembly, at = Assembly(4 << 20, 100), 0
        whole_now = whole if most > 7 else whole[:200_000]
        while at < len(whole_now):
            step = dice.randint(1, most)
            assembly.feed(memoryview(whole_now)[at : at + step])
            at += step
        found = [(flag, bytes(data)) for flag, data in assembly.whole]
        assert found == sent[: len(found)]
        assert len(found) == len(sent) or most == 7
        assert assembly.partial == (most == 7 and len(b"".join(_wire(d) for _, d in found)) < len(whole_now))


def test_bytes_may_be_put_where_the_message_will_lie() -> None:
    assembly = Assembly(1 << 20, 1)
    assembly.feed(memoryview(_wire(b"0123456789")[:8]))
    space = assembly.space()
    space[:7] = b"3456789"
    assembly.filled(7)
    assert [bytes(data) for _, data in assembly.whole] == [b"0123456789"]


@pytest.mark.parametrize("size", [1, 15, 16, 17, 110_700, 2 << 20])
def test_a_message_ends_at_a_multiple_of_sixteen(size: int) -> None:
    """So the tensor in it, which is its last field, begins at one where it is as long."""
    assembly = Assembly(4 << 20, 1)
    assembly.feed(memoryview(_wire(bytes(size))))
    data = np.frombuffer(assembly.whole[0][1], np.uint8)
    assert (data.ctypes.data + size) % 16 == 0


def test_what_is_too_long_or_no_message_is_refused_before_it_comes() -> None:
    with pytest.raises(Overloaded, match="has 11 bytes; at most 10"):
        Assembly(10, 1).feed(memoryview(b"\0\0\0\0\x0b"))
    with pytest.raises(BadInput, match="neither 0 nor 1"):
        Assembly(10, 1).feed(memoryview(b"\7\0\0\0\0"))
    with pytest.raises(Overloaded, match="more than 2 messages"):
        Assembly(10, 2).feed(memoryview(bytes(15)))
