"""The sample of rows: fair, the same in whatever order and parts the rows come, and small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.calibration.statistics.reservoir import row_keys, rows_sampled
from calibrant.calibration.statistics.sidecar import load, save
from calibrant.errors import FormatError


def made(rows: int, classes: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, classes)), rng.integers(0, classes, rows)


def test_parts_in_any_order_give_the_same_sample_as_the_whole() -> None:
    z, y = made(6000)
    whole = statistics_of(z, y).sampled
    order = np.random.default_rng(1).permutation(6000)
    a, b = order[:1234], order[1234:]
    parts = (statistics_of(z[b], y[b]) + statistics_of(z[a], y[a])).sampled
    assert whole is not None
    assert parts is not None
    assert len(whole.key) == 2000
    np.testing.assert_array_equal(whole.key, parts.key)
    np.testing.assert_array_equal(whole.label, parts.label)
    np.testing.assert_array_equal(whole.probs, parts.probs)


def test_few_rows_are_all_kept_with_their_probabilities() -> None:
    z, y = made(300)
    sampled = statistics_of(z, y).sampled
    assert sampled is not None
    e = np.exp(z - z.max(axis=1, keepdims=True))
    expected = (e / e.sum(axis=1, keepdims=True))[np.argsort(row_keys(z, y, z.argmax(axis=1)))]
    np.testing.assert_allclose(sampled.probs, expected, rtol=1e-3)


def test_each_row_has_the_same_chance_whatever_its_label() -> None:
    z, y = made(40_000)
    sampled = statistics_of(z, y).sampled
    assert sampled is not None
    share = np.bincount(sampled.label, minlength=5) / 2000
    # standard error of a share of .2 among 2,000: .009; four of them
    np.testing.assert_allclose(share, np.bincount(y, minlength=5) / 40_000, atol=0.036)


def test_two_classes_need_no_rows_and_many_classes_get_fewer() -> None:
    assert [rows_sampled(c) for c in (2, 3, 1000, 10_000, 1_000_000)] == [0, 2000, 2000, 400, 100]
    assert statistics_of(*made(50, 2)).sampled is None


def test_a_sidecar_keeps_the_sample_and_one_without_it_is_made_again(tmp_path: Path) -> None:
    s = statistics_of(*made(500))
    save(tmp_path / "a.stats.npz", s, predictions="", stamps=[])
    back = load(tmp_path / "a.stats.npz")[1].sampled
    assert back is not None
    assert s.sampled is not None
    np.testing.assert_array_equal(back.probs, s.sampled.probs)
    with np.load(tmp_path / "a.stats.npz") as arrays:
        old = dict(arrays)
    text = old["header"].tobytes().replace(b'"format_version": 2', b'"format_version": 1')
    old["header"] = np.frombuffer(text, np.uint8)
    np.savez(tmp_path / "b.stats.npz", **old)
    with pytest.raises(FormatError, match="format 1"):
        load(tmp_path / "b.stats.npz")
