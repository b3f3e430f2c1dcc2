"""`--shard I/N`: the part of the jobs that is this machine's, by their place in the list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from calibrant.errors import ConfigError

T = TypeVar("T")


def read_shard(text: str) -> tuple[int, int]:
    """Which, from 0, of how many."""
    first, slash, second = text.partition("/")
    if not slash or not first.isdigit() or not second.isdigit() or not 1 <= int(first) <= int(second):
        raise ConfigError(f'"{text}" is not I/N', where="--shard", fix="the first of three machines takes 1/3")
    return int(first) - 1, int(second)


def own_part(jobs: Sequence[T], shard: tuple[int, int]) -> list[T]:
    mine, shards = shard
    return [job for i, job in enumerate(jobs) if i % shards == mine]
