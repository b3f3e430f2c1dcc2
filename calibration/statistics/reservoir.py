"""A fair sample of whole rows, kept because classes of one row are not independent.

A row's key is a hash of its values and its label; the rows with the smallest keys are kept. So the sample depends
neither on the order of the rows nor on how they came in parts, and samples of disjoint rows add up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.inputs import Floats, Labels

Keys = NDArray[np.uint64]
_WAITING = 500  # rows that wait to be told from those already kept
_ROWS, _LEAST, _NUMBERS = 2000, 100, 4_000_000  # 8 MB of probabilities at most, except with very many classes


def rows_sampled(classes: int) -> int:
    """How many rows are kept; none for two classes, which are one."""
    return 0 if classes <= 2 else min(_ROWS, max(_LEAST, _NUMBERS // classes))


@dataclass(frozen=True)
class SampledRows:
    """In order of keys; probabilities (rows, C), in two bytes each once they are all there."""

    key: Keys
    label: NDArray[np.int32]
    probs: NDArray[np.floating[Any]]

    def __add__(self, other: SampledRows) -> SampledRows:
        return _joined([self, other]).smallest()

    def smallest(self) -> SampledRows:
        first = np.argsort(self.key, kind="stable")[: rows_sampled(self.probs.shape[1])]
        return SampledRows(self.key[first], self.label[first], self.probs[first])


class Reservoir:
    """`add` chunks, then `finish`."""

    def __init__(self, classes: int) -> None:
        self._most = rows_sampled(classes)
        self._below = np.uint64(2**64 - 1) if self._most else np.uint64(0)
        self._kept = _no_rows(classes)
        self._new: list[SampledRows] = []
        self._waiting = 0

    def wanted(self, values: Floats, labels: Labels, predicted: NDArray[np.int64]) -> tuple[NDArray[np.intp], Keys]:
        """Rows of a chunk that may belong to the sample, and their keys."""
        if not self._most:
            return np.zeros(0, np.intp), np.zeros(0, np.uint64)
        key = row_keys(values, labels, predicted)
        rows = np.flatnonzero(key < self._below)
        return rows, key[rows]

    def add(self, key: Keys, labels: Labels, probs: NDArray[Any]) -> None:
        self._new.append(SampledRows(key, labels.astype(np.int32), probs.astype(np.float32)))
        self._waiting += len(key)
        if self._waiting >= _WAITING:
            self._shrink()

    def _shrink(self) -> None:
        self._kept, self._new, self._waiting = _joined([self._kept, *self._new]).smallest(), [], 0
        if len(self._kept.key) == self._most:
            self._below = self._kept.key[-1]

    def finish(self) -> SampledRows | None:
        if not self._most:
            return None
        self._shrink()
        return replace(self._kept, probs=self._kept.probs.astype(np.float16))


def row_keys(values: Floats, labels: Labels, predicted: NDArray[np.int64]) -> Keys:
    """(N,) hashes of a row's first value, its label's value, the label and the prediction."""
    first, own = _bits(values[:, 0]), _bits(values[np.arange(len(labels)), labels])
    key: Keys = _mixed(_mixed(first) ^ own)
    pair: Keys = (labels.astype(np.uint64) << np.uint64(32)) + predicted.astype(np.uint64)
    return _mixed(key ^ pair)


def _bits(values: Floats) -> Keys:
    return values.astype(np.float64).view(np.uint64)


def _mixed(key: Keys) -> Keys:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014)."""
    key = key + np.uint64(0x9E3779B97F4A7C15)
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(key ^ (key >> np.uint64(31)))


def _no_rows(classes: int) -> SampledRows:
    return SampledRows(np.zeros(0, np.uint64), np.zeros(0, np.int32), np.zeros((0, classes), np.float32))


def _joined(parts: list[SampledRows]) -> SampledRows:
    return SampledRows(
        np.concatenate([p.key for p in parts]),
        np.concatenate([p.label for p in parts]),
        np.concatenate([p.probs for p in parts]),
    )
