"""Bodies that were compressed on the way, and what a few bytes may grow to."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest

from calibrant.serve.protocol.content_encoding import compress, decompress
from calibrant.serve.protocol.errors import BadInput, TooLarge, UnknownEncoding

TEXT = b'{"inputs": []}' * 50


def read(data: bytes, encoding: str, limit: int = 10_000) -> bytes:
    return bytes(decompress(memoryview(data), encoding, limit))


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_what_is_compressed_comes_back(encoding: str) -> None:
    assert read(compress([TEXT, b"end"], encoding), encoding) == TEXT + b"end"


def test_several_gzip_members_are_one_body() -> None:
    assert read(gzip.compress(b"one ") + gzip.compress(b"two"), "gzip") == b"one two"
    with pytest.raises(TooLarge):
        read(gzip.compress(TEXT) + gzip.compress(TEXT), "gzip", limit=len(TEXT) + 1)


def test_exactly_the_limit_is_taken_and_a_byte_more_is_not() -> None:
    assert read(zlib.compress(TEXT), "deflate", limit=len(TEXT)) == TEXT
    with pytest.raises(TooLarge, match=f"larger than {len(TEXT) - 1} bytes"):
        read(zlib.compress(TEXT), "deflate", limit=len(TEXT) - 1)


def test_a_bomb_is_not_unpacked_to_see_how_large_it_is() -> None:
    bomb = gzip.compress(bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(TooLarge):
        read(bomb, "gzip", limit=1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("data", "encoding", "says"),
    [
        (gzip.compress(TEXT, mtime=0)[:-9], "gzip", "cut off"),
        (gzip.compress(TEXT, mtime=0) + b"more", "gzip", "4 bytes follow the end"),
        (b"no gzip", "gzip", "not valid gzip"),
    ],
)
def test_damage_is_named(data: bytes, encoding: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        read(data, encoding)


def test_what_is_not_known_is_refused_and_no_encoding_is_none() -> None:
    with pytest.raises(UnknownEncoding, match="br"):
        read(TEXT, "br")
    assert read(TEXT, "") == read(TEXT, "identity") == TEXT
