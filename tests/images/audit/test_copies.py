"""Pairs by the bits that differ, groups by union-find."""

from __future__ import annotations

import numpy as np

from calibrant.images.audit.copies import chained, near_pairs, united


def test_pairs_count_the_bits_of_both_hashes() -> None:
    p = np.asarray([0, 0b111, 2**64 - 1], np.uint64)
    d = np.asarray([0, 0b1, 0], np.uint64)
    assert near_pairs(p, d, near=4) == [(0, 1, 4)]
    assert near_pairs(p, d, near=3) == []


def test_blocks_find_what_one_block_finds(monkeypatch: object) -> None:
    from calibrant.images.audit import copies

    rng = np.random.default_rng(0)
    p = rng.integers(0, 2**63, 60, dtype=np.uint64)
    p[40:] = p[:20] ^ np.uint64(5)
    d = np.zeros(60, np.uint64)
    expected = [(i, i + 40, 2) for i in range(20)]
    assert near_pairs(p, d) == expected
    monkeypatch.setattr(copies, "_BLOCK", 130)  # type: ignore[attr-defined]
    assert near_pairs(p, d) == expected


def test_a_group_is_named_after_its_smallest_member() -> None:
    assert united(6, [(4, 5), (1, 2), (2, 4)]).tolist() == [0, 1, 1, 3, 1, 1]


def test_one_name_makes_one_group() -> None:
    assert chained(["a", "b", "a", "c", "a"]) == [(0, 2), (0, 4)]
