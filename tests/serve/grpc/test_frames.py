from __future__ import annotations

import pytest

from calibrant.serve.grpc import frames as f


def test_frames_by_hand() -> None:
    """As RFC 9113 draws them: 24 bits of length, 8 of type, 8 of flags, 31 of stream."""
    assert f.frame(f.PING, f.ACK, 0, b"12345678") == b"\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678"
    assert f.reset(5, f.CANCEL) == b"\x00\x00\x04\x03\x00\x00\x00\x00\x05\x00\x00\x00\x08"
    assert f.window_update(0, 65536) == b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x01\x00\x00"
    assert (
        f.goaway(7, f.ENHANCE_YOUR_CALM, "hm")
        == b"\x00\x00\x0a\x07\x00\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x0bhm"
    )
    assert f.settings({f.MAX_FRAME_SIZE: 16384}) == b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00"


def test_settings_and_numbers_are_read() -> None:
    assert f.read_settings(memoryview(b"\x00\x05\x00\x00\x40\x00\x00\x04\x7f\xff\xff\xff")) == [
        (5, 16384),
        (4, 2**31 - 1),
    ]
    assert f.word(memoryview(b"\x80\x00\x00\x07")) == 7  # the highest bit is reserved
    for read in (f.read_settings, f.word):
        with pytest.raises(f.ConnectionFault) as caught:
            read(memoryview(b"12345"))
        assert caught.value.code == f.FRAME_SIZE_ERROR


@pytest.mark.parametrize(
    ("payload", "flags", "code"),
    [(b"", f.PADDED, f.FRAME_SIZE_ERROR), (b"1234", f.WITH_PRIORITY, f.FRAME_SIZE_ERROR),
     (b"\x02x", f.PADDED, f.PROTOCOL_ERROR)],
)  # fmt: skip
def test_padding_that_is_longer_than_its_frame(payload: bytes, flags: int, code: int) -> None:
    with pytest.raises(f.ConnectionFault) as caught:
        f.unpadded(memoryview(payload), flags)
    assert caught.value.code == code


def test_what_padding_and_priority_surround() -> None:
    assert f.unpadded(memoryview(b"\x02" + b"5.pri" + b"block" + b"\0\0"), f.PADDED | f.WITH_PRIORITY) == b"block"
    assert f.unpadded(memoryview(b"\x01\0"), f.PADDED) == b""
