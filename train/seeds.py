"""Randomness as a pure function of (seed, purpose, place): what makes a run resume exactly.

Nothing about a generator's state is ever saved. Whoever needs random numbers derives a key from the seed, the purpose
and the place in the run, so it does not matter how many processes or workers there are or how often the run stopped.
"""

from __future__ import annotations

import hashlib
import random

import numpy as np
import torch
from numpy.typing import NDArray

DRAWS = 8  # uniform numbers that each sample has for crops and flips: two blocks of Philox


def derive(*key: int | str) -> int:
    """A 63-bit number that is different for different keys."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest()) >> 1


def generator(*key: int | str) -> np.random.Generator:
    """NumPy generator for a key; Philox, since its streams for different keys are independent."""
    return np.random.Generator(np.random.Philox(key=derive(*key)))


def seed_everything(*key: int | str) -> None:
    """Set the global generators of random, NumPy and torch: for code that takes no generator (dropout, policies)."""
    value = derive(*key)
    random.seed(value)
    np.random.seed(value & 0xFFFFFFFF)  # noqa: NPY002
    # torch.manual_seed formats a stack trace for CUDA's lazy seed, 88 us against 1; the stream is the same.
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(value)


def uniform_rows(*key: int | str, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """DRAWS uniform numbers for each position of an endless table that the key names."""
    if len(positions) == 0:
        return np.zeros((0, DRAWS))
    first = int(positions[0])
    if np.array_equal(positions, np.arange(first, first + len(positions))):
        return _rows(derive(*key), first, len(positions))
    return np.concatenate([_rows(derive(*key), int(p), 1) for p in positions])


def _rows(key: int, first: int, count: int) -> NDArray[np.float64]:
    # Philox gives four 64-bit numbers a block and jumps to any block.
    bits = np.random.Philox(key=key).advance(first * DRAWS // 4)
    return np.random.Generator(bits).random((count, DRAWS))
