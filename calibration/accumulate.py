"""Builds `Statistics` from chunks of logits (or probabilities), in float64 and in memory that does not grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.grid import grid
from calibrant.calibration.inputs import Floats, Labels, check_labels, check_logits, check_probs
from calibrant.calibration.statistics import (
    ROWS_KEPT,
    ClassSums,
    KeptRows,
    Statistics,
    Table,
    class_order,
)  # fmt: skip

_CHUNK_NUMBERS = 1 << 14  # probabilities in flight: 128 KB in float64, which the second-level cache holds
_FEW_CLASSES = 64

F = NDArray[np.float64]


@dataclass(frozen=True)
class RowScores:
    """What one chunk says about each of its rows."""

    confidence: Floats
    predicted: NDArray[np.int64]
    own: F  # probability of the label
    nll: F
    entropy: F
    p_squared: F
    top5: NDArray[np.bool_]


class Accumulator:
    """`add` chunks, then `finish`. `rows_expected` above the number of rows kept saves keeping them in vain."""

    def __init__(self, classes: int, *, rows_expected: int | None = None) -> None:
        self.classes, self.order = classes, class_order(classes)
        self._grid, self._class_grid = grid(100), grid(self.order)
        cells = self._class_grid.cells
        self._same_grid = self._class_grid is self._grid
        self._tables = {name: _empty(classes * cells) for name in ("right", "by_predicted", "by_true", "probability")}
        self._all = None if self._same_grid else {name: _empty(self._grid.cells) for name in ("right", "wrong")}
        self._positive = np.zeros(classes * cells, np.int64)
        self._counts = np.zeros((3, classes), np.int64)
        self._sums = np.zeros((6, classes))
        self._probability_sum = np.zeros(classes)
        self._dense = np.zeros(classes * classes, np.int64) if classes <= 256 else None
        self._pairs: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._pending = 0
        self._rows = 0
        self._kept: list[KeptRows] | None = [] if rows_expected is None or rows_expected <= ROWS_KEPT else None

    def add(self, logits: ArrayLike, labels: ArrayLike) -> None:
        z = check_logits(logits)
        y = check_labels(labels, len(z), self.classes)
        self._add(z, y, _scores_few if self.classes <= _FEW_CLASSES else _scores_many)

    def add_probabilities(self, probs: ArrayLike, labels: ArrayLike) -> None:
        p = check_probs(probs)
        self._add(p, check_labels(labels, len(p), self.classes), _scores_of_probabilities)

    def _add(self, values: Floats, y: Labels, score: Any) -> None:
        if values.shape[1] != self.classes:
            raise ValueError(f"{values.shape[1]} classes, expected {self.classes}")
        rows = max(32, _CHUNK_NUMBERS // self.classes)
        for start in range(0, len(y), rows):
            labels = y[start : start + rows]
            scores, probs, classes_first = score(values[start : start + rows], labels)
            self._add_rows(scores, labels)
            self._add_probabilities(probs, classes_first, scores, labels)

    def _add_rows(self, s: RowScores, y: Labels) -> None:
        self._rows += len(y)
        correct = s.predicted == y
        wrong = np.flatnonzero(~correct)
        c = s.confidence.astype(np.float64, copy=False)
        cell = self._class_grid.assign(s.confidence)
        # Right rows and wrong ones go to different tables; wrong ones to two.
        right = np.flatnonzero(correct)
        cells = self._class_grid.cells
        _add_to(self._tables["right"], y[right] * cells + cell[right], c[right])
        _add_to(self._tables["by_predicted"], s.predicted[wrong] * cells + cell[wrong], c[wrong])
        _add_to(self._tables["by_true"], y[wrong] * cells + cell[wrong], c[wrong])
        if self._all is not None:
            fine = self._grid.assign(s.confidence)
            _add_to(self._all["right"], fine[right], c[right])
            _add_to(self._all["wrong"], fine[wrong], c[wrong])
        nll, brier = s.nll, s.p_squared - 2.0 * s.own + 1.0
        zero = s.own == 0
        if zero.any():
            nll = np.where(zero, 0.0, nll)
            np.add.at(self._counts[2], y[zero], 1)
        np.add.at(self._counts[0], y, 1)
        np.add.at(self._counts[1], y[s.top5], 1)
        for sums, value in zip(self._sums, (nll, nll * nll, brier, brier * brier, s.entropy, s.p_squared), strict=True):
            np.add.at(sums, y, value)
        self._confuse(y, s.predicted)
        if self._kept is not None:
            if self._rows > ROWS_KEPT:
                self._kept = None
            else:
                self._kept.append(KeptRows(c.copy(), y.astype(np.int32), correct))

    def _confuse(self, y: Labels, predicted: NDArray[np.int64]) -> None:
        pair = y * self.classes + predicted
        if self._dense is not None:
            np.add.at(self._dense, pair, 1)
            return
        values, count = np.unique(pair, return_counts=True)
        self._pairs.append((values, count))
        self._pending += len(values)
        if self._pending > 200_000:
            self._pairs = [_sum_pairs(self._pairs)]
            self._pending = len(self._pairs[0][0])

    def _add_probabilities(self, p: Floats, classes_first: bool, s: RowScores, y: Labels) -> None:
        """Cells of p_k. What lies in the lowest cell, nearly everything, is a remainder and never looked up."""
        n, cells = len(y), self._class_grid.cells
        small = self._class_grid.smallest
        flat = p.reshape(-1)
        big = np.flatnonzero(flat > small)
        value = flat[big]
        k = big // n if classes_first else big % self.classes
        _add_to(self._tables["probability"], k * cells + self._class_grid.assign(value), value)
        self._probability_sum += p.sum(axis=1 if classes_first else 0, dtype=np.float64)
        np.add.at(self._positive, y * cells + self._class_grid.assign(s.own.astype(p.dtype, copy=False)), 1)

    def finish(self) -> Statistics:
        c, cells = self.classes, self._class_grid.cells
        tables = {
            n: Table(count.reshape(c, cells), total.reshape(c, cells)) for n, (count, total) in self._tables.items()
        }
        probability = tables["probability"]
        probability.count[:, 0] += self._rows - probability.count.sum(axis=1)
        probability.total[:, 0] += self._probability_sum - probability.total.sum(axis=1)
        if self._all is None:
            wrong = tables["by_predicted"]
            all_right = Table(tables["right"].count.sum(axis=0), tables["right"].total.sum(axis=0))
            all_wrong = Table(wrong.count.sum(axis=0), wrong.total.sum(axis=0))
        else:
            all_right, all_wrong = Table(*self._all["right"]), Table(*self._all["wrong"])
        if self._dense is not None:
            pair = np.flatnonzero(self._dense)
            count = self._dense[pair]
        else:
            pair, count = _sum_pairs(self._pairs)
        nll, nll2, brier, brier2, entropy, squared = self._sums
        n, top5, zero = self._counts
        kept = None
        if self._kept is not None:
            kept = KeptRows(
                _join([k.confidence for k in self._kept], np.float64), _join([k.label for k in self._kept], np.int32),
                _join([k.correct for k in self._kept], np.bool_),
            )  # fmt: skip
        return Statistics(
            c, self.order, tables["right"], tables["by_predicted"], tables["by_true"], all_right, all_wrong,
            self._positive.reshape(c, cells), probability,
            ClassSums(n, top5, zero, nll, nll2, brier, brier2, entropy, squared), pair, count, kept,
        )  # fmt: skip


def statistics_of(logits: ArrayLike, labels: ArrayLike) -> Statistics:
    """Statistics of logits (N, C) in memory."""
    z = check_logits(logits)
    accumulator = Accumulator(z.shape[1], rows_expected=len(z))
    accumulator.add(z, labels)
    return accumulator.finish()


def statistics_of_probabilities(probs: ArrayLike, labels: ArrayLike) -> Statistics:
    """Statistics of probabilities (N, C) in memory."""
    p = check_probs(probs)
    accumulator = Accumulator(p.shape[1], rows_expected=len(p))
    accumulator.add_probabilities(p, labels)
    return accumulator.finish()


def _scores_few(part: Floats, y: Labels) -> tuple[RowScores, F, bool]:
    """Classes first: reductions over classes then run along whole rows of memory."""
    z = part.T.astype(np.float64, order="C")
    c, n = z.shape
    z -= z.max(axis=0)
    own = z[y, np.arange(n)]
    if c <= 5:
        top5 = np.ones(n, bool)
    else:
        top5 = (z >= own).sum(axis=0, dtype=np.uint8) <= 5
        _settle_top5(top5, z.T, own, y)
    predicted = _predicted_classes_first(z, own, y)
    e = np.exp(z)
    s = e.sum(axis=0)
    log_s = np.log(s)
    z *= e
    entropy = log_s - z.sum(axis=0) / s
    e /= s
    np.multiply(e, e, out=z)
    scores = RowScores(1.0 / s, predicted, np.exp(own) / s, log_s - own, entropy, z.sum(axis=0), top5)
    return scores, e, True


def _predicted_classes_first(z: F, own: F, y: Labels) -> NDArray[np.int64]:
    """First class at the maximum (which is 0): the label where it is one and alone, looked for only elsewhere."""
    if np.count_nonzero(z == 0) != z.shape[1]:  # a tie somewhere
        first: NDArray[np.int64] = z.argmax(axis=0)
        return first
    predicted = y.copy()
    wrong = np.flatnonzero(own < 0)
    predicted[wrong] = z[:, wrong].argmax(axis=0)
    return predicted


def _scores_many(part: Floats, y: Labels) -> tuple[RowScores, F, bool]:
    z = part.astype(np.float64)
    n = len(y)
    predicted = part.argmax(axis=1)
    z -= z[np.arange(n), predicted][:, None]
    own = z[np.arange(n), y]
    top5 = np.count_nonzero(z >= own[:, None], axis=1) <= 5
    _settle_top5(top5, z, own, y)
    e = np.exp(z)
    s = e.sum(axis=1)
    log_s = np.log(s)
    entropy = log_s - np.einsum("ij,ij->i", e, z) / s
    e /= s[:, None]
    squared = np.einsum("ij,ij->i", e, e)
    return RowScores(1.0 / s, predicted, np.exp(own) / s, log_s - own, entropy, squared, top5), e, False


def _scores_of_probabilities(p: Floats, y: Labels) -> tuple[RowScores, Floats, bool]:
    n = len(y)
    predicted = p.argmax(axis=1)
    confidence = p[np.arange(n), predicted]
    own = p[np.arange(n), y].astype(np.float64)
    top5 = np.count_nonzero(p >= p[np.arange(n), y][:, None], axis=1) <= 5
    _settle_top5(top5, p, p[np.arange(n), y], y)
    wide = p.astype(np.float64, copy=False)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = np.log(wide)
        entropy = -np.where(wide > 0, wide * log_p, 0.0).sum(axis=1)
        nll = -np.log(own)
    squared = np.einsum("ij,ij->i", wide, wide)
    return RowScores(np.minimum(confidence, 1), predicted, own, nll, entropy, squared, top5), np.minimum(p, 1), False


def _settle_top5(top5: NDArray[np.bool_], z: Floats, own: Floats, y: Labels) -> None:
    """Rows where at least the label stands among more than five not below it: of equals the lower class comes first."""
    open_rows = np.flatnonzero(~top5)
    if len(open_rows) == 0:
        return
    part, mine = z[open_rows], own[open_rows][:, None]
    before = np.arange(part.shape[1]) < y[open_rows][:, None]
    top5[open_rows] = ((part > mine) | ((part == mine) & before)).sum(axis=1) < 5


def _empty(size: int) -> tuple[NDArray[np.int64], F]:
    return np.zeros(size, np.int64), np.zeros(size)


def _add_to(table: tuple[NDArray[np.int64], F], index: NDArray[np.int64], value: Floats) -> None:
    np.add.at(table[0], index, 1)
    np.add.at(table[1], index, value.astype(np.float64, copy=False))


def _sum_pairs(
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    pair, index = np.unique(_join([p for p, _ in parts], np.int64), return_inverse=True)
    count = np.zeros(len(pair), np.int64)
    np.add.at(count, index, _join([c for _, c in parts], np.int64))
    return pair, count


def _join(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)
