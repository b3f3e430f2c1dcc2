"""Builds `Statistics` from chunks of logits (or probabilities), in float64 and in memory that does not grow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.inputs import (
    Floats,
    Labels,
    check_labels,
    check_logits,
    check_matrix,
    check_probs,
    finite_logits,
)
from calibrant.calibration.statistics.grid import grid
from calibrant.calibration.statistics.reservoir import Reservoir
from calibrant.calibration.statistics.row_scores import (
    RowScores,
    Shares,
    scores_few,
    scores_many,
    scores_of_probabilities,
)
from calibrant.calibration.statistics.statistics import Statistics
from calibrant.calibration.statistics.tables import ROWS_KEPT, ClassSums, KeptRows, Table, class_order

_FEW_CLASSES = 64
_PENDING = 200_000  # pairs (true, predicted) that wait to be counted
# Probabilities in flight. Few classes: 256 KB in float64, so that the tables and they fit into the second-level cache.
# Many: as much as keeps a mask of them below 128 KB, where the allocator would ask for fresh pages each time.
_CHUNK_FEW, _CHUNK_MANY = 1 << 15, 130_000

F = NDArray[np.float64]
_NOTHING = 1000.0  # so far below the others the exponential of float64 is exactly 0
_ONE = np.int32(1)  # of the tables' own type: a plain 1 would be cast row by row


class Accumulator:
    """`add` chunks, then `finish`. `rows_expected` above the number of rows kept saves keeping them in vain."""

    def __init__(self, classes: int, *, rows_expected: int | None = None) -> None:
        self.classes, self.order = classes, class_order(classes)
        self._grid, self._class_grid = grid(100), grid(self.order)
        # The edges of a lower order are among those of a higher one, so each fine cell lies in one coarse cell.
        self._coarser = self._class_grid.assign(self._grid.edges[1:])
        cells = self._class_grid.cells
        self._tables = {name: _empty(classes * cells) for name in ("right", "by_predicted", "by_true", "probability")}
        self._all = {name: _empty(self._grid.cells) for name in ("right", "wrong")}
        self._positive = np.zeros(classes * cells, np.int32)
        self._counts = np.zeros((3, classes), np.int64)
        self._sums = np.zeros((6, classes))
        self._probability_sum = np.zeros(classes)
        self._dense = np.zeros(classes * classes, np.int64) if classes <= 256 else None
        self._pairs: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._pending, self._most_pending = 0, _PENDING
        self._rows = 0
        self._reservoir = Reservoir(classes)
        self._kept: list[KeptRows] | None = [] if rows_expected is None or rows_expected <= ROWS_KEPT else None

    def add(self, logits: ArrayLike, labels: ArrayLike) -> None:
        z = check_matrix(logits, "logits")
        y = check_labels(labels, len(z), self.classes)
        self._add(z, y, scores_few if self.classes <= _FEW_CLASSES else scores_many)

    def add_probabilities(self, probs: ArrayLike, labels: ArrayLike) -> None:
        p = check_probs(probs)
        self._add(p, check_labels(labels, len(p), self.classes), scores_of_probabilities)

    def _add(self, values: Floats, y: Labels, score: Any) -> None:
        if values.shape[1] != self.classes:
            raise ValueError(f"{values.shape[1]} classes, expected {self.classes}")
        few = self.classes <= _FEW_CLASSES
        rows = max(32, (_CHUNK_FEW if few else _CHUNK_MANY) // self.classes)
        for start in range(0, len(y), rows):
            labels = y[start : start + rows]
            part = values[start : start + rows]
            with np.errstate(invalid="ignore"):
                scores, parts = score(part, labels)
            if not np.isfinite(scores.entropy.sum()):
                check_logits(values)  # NaN and infinity show up here first; this says where
                scores, parts = score(finite_logits(part, _NOTHING), labels)
            chosen, keys = self._reservoir.wanted(values[start : start + rows], labels, scores.predicted)
            if len(chosen):
                self._reservoir.add(keys, labels[chosen], parts.rows(chosen))
            self._add_probabilities(parts, scores, labels, self._add_rows(scores, labels))

    def _add_rows(self, s: RowScores, y: Labels) -> NDArray[np.int64]:
        """Returns the cell of each row's label, of its probability."""
        self._rows += len(y)
        correct = s.predicted == y
        wrong = np.flatnonzero(~correct)
        c = s.confidence.astype(np.float64, copy=False)
        fine = self._grid.assign(s.confidence)
        cell = self._coarser[fine]
        # Right rows and wrong ones go to different tables; wrong ones to two.
        right = np.flatnonzero(correct)
        cells = self._class_grid.cells
        _add_to(self._tables["right"], y[right] * cells + cell[right], c[right])
        _add_to(self._tables["by_predicted"], s.predicted[wrong] * cells + cell[wrong], c[wrong])
        _add_to(self._tables["by_true"], y[wrong] * cells + cell[wrong], c[wrong])
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
        cell[wrong] = self._class_grid.assign(s.own[wrong].astype(s.confidence.dtype, copy=False))
        return cell

    def _confuse(self, y: Labels, predicted: NDArray[np.int64]) -> None:
        pair = y * self.classes + predicted
        if self._dense is not None:
            np.add.at(self._dense, pair, 1)
            return
        small = np.int32 if self.classes < 46_000 else np.int64
        self._pairs.append((pair.astype(small), np.ones(len(pair), np.int8)))
        self._pending += len(pair)
        if self._pending > self._most_pending:
            self._pairs = [_sum_pairs(self._pairs)]
            # What is left are pairs that differ; sorting again pays only after as many new rows.
            self._pending = len(self._pairs[0][0])
            self._most_pending = max(_PENDING, 2 * self._pending)

    def _add_probabilities(self, parts: Shares, s: RowScores, y: Labels, own_cell: NDArray[np.int64]) -> None:
        """Cells of p_k. What lies in the lowest cell, nearly everything, is a remainder and never looked up."""
        n, cells, small = len(y), self._class_grid.cells, self._class_grid.smallest
        total = parts.total
        if parts.classes_first:
            big = np.flatnonzero(parts.values > small * total)
            k = big // n
            row = big - k * n
            self._probability_sum += parts.values @ (1.0 / total)
        else:
            big = np.flatnonzero(
                parts.source > (parts.log_total + np.log(small) - 1e-3)[:, None].astype(parts.source.dtype)
            )
            row = big // self.classes
            k = big - row * self.classes
            self._probability_sum += (1.0 / total) @ parts.values
        value = (parts.values.reshape(-1)[big] / total[row]).astype(s.confidence.dtype, copy=False)
        sure = np.flatnonzero(value > small)
        k, value = k[sure], value[sure]
        _add_to(self._tables["probability"], k * cells + self._class_grid.assign(value), value)
        np.add.at(self._positive, y * cells + own_cell, _ONE)

    def finish(self) -> Statistics:
        c = self.classes
        tables = {n: Table(k.reshape(c, -1), v.reshape(c, -1)) for n, (k, v) in self._tables.items()}
        probability = tables["probability"]
        probability.count[:, 0] += self._rows - probability.count.sum(axis=1)
        probability.total[:, 0] += self._probability_sum - probability.total.sum(axis=1)
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
                _join([k.confidence for k in self._kept], np.float64),
                _join([k.label for k in self._kept], np.int32),
                _join([k.correct for k in self._kept], np.bool_),
            )
        return Statistics(
            c,
            self.order,
            tables["right"],
            tables["by_predicted"],
            tables["by_true"],
            all_right,
            all_wrong,
            self._positive.reshape(c, -1),
            probability,
            ClassSums(n, top5, zero, nll, nll2, brier, brier2, entropy, squared),
            pair,
            count,
            kept,
            sampled=self._reservoir.finish(),
        )


def statistics_of(logits: ArrayLike, labels: ArrayLike) -> Statistics:
    """Statistics of logits (N, C) in memory."""
    z = check_matrix(logits, "logits")
    accumulator = Accumulator(z.shape[1], rows_expected=len(z))
    accumulator.add(z, labels)
    return accumulator.finish()


def statistics_of_probabilities(probs: ArrayLike, labels: ArrayLike) -> Statistics:
    """Statistics of probabilities (N, C) in memory."""
    p = check_probs(probs)
    accumulator = Accumulator(p.shape[1], rows_expected=len(p))
    accumulator.add_probabilities(p, labels)
    return accumulator.finish()


def _empty(size: int) -> tuple[NDArray[np.int32], F]:
    return np.zeros(size, np.int32), np.zeros(size)


def _add_to(table: tuple[NDArray[np.int32], F], index: NDArray[np.int64], value: Floats) -> None:
    np.add.at(table[0], index, _ONE)
    np.add.at(table[1], index, value.astype(np.float64, copy=False))


def _sum_pairs(
    parts: list[tuple[NDArray[Any], NDArray[Any]]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    pair, index = np.unique(_join([p for p, _ in parts], np.int64), return_inverse=True)
    count = np.zeros(len(pair), np.int64)
    np.add.at(count, index, _join([c for _, c in parts], np.int64))
    return pair, count


def _join(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)
