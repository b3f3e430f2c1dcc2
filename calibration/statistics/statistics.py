"""Sufficient statistics of predictions: one pass over the logits in bounded memory, then everything comes from here.

What is kept, for C classes:
- by predicted class and by true class, over cells of confidence (see `grid`): rows and sum of confidence, right and
  wrong apart. Right rows have the same class both ways, so three tables say it all. Over all classes the cells are
  those of order 100; by class, and so under a target prior, of order 50, or 15 above 64 classes (`class_order`).
- class-wise, over cells of p_k: rows, rows with y = k, sum of p_k.
- by true class: rows, top-5 hits, sums and sums of squares of NLL and Brier, sums of entropy and of sum_k p_k^2 (what
  NLL and Brier come to under perfect calibration), labels of probability 0.
- the confusion counts, as pairs that occur.
- up to 100,000 rows: each row's confidence, label and correctness, so that ranking and equal-mass metrics are exact;
  beyond, they come from the cells.
- up to 2,000 rows' probabilities, a fair sample (see `reservoir`): how the classes of a row go together.

Statistics of disjoint rows add up: counts exactly, sums to rounding. By class, a target prior is a weight for each true
class, `sum_y w_y H[y]`; top-label reliability is never selected by true class, which would bias it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.statistics.bins import Bins, check_bins, equal_width, equal_width_index, sums
from calibrant.calibration.statistics.grid import Grid, grid
from calibrant.calibration.statistics.reservoir import SampledRows
from calibrant.calibration.statistics.tables import (
    ROWS_KEPT,
    CellCounts,
    ClassSums,
    Counts,
    KeptRows,
    Sums,
    Table,
    add_counts,
)
from calibrant.errors import ConfigError, DataError

if TYPE_CHECKING:
    from calibrant.artifacts.predictions import PredictionsFile
    from calibrant.calibration.formula import Formula
    from calibrant.calibration.statistics.sidecar import Engine


@dataclass(frozen=True)
class Statistics:
    classes: int
    order: int  # of the per-class grids
    right: Table  # (C, cells), class = label = prediction
    wrong_by_predicted: Table
    wrong_by_true: Table
    all_right: Table  # (cells of order 100,)
    all_wrong: Table
    positive: CellCounts  # (C, cells of p): rows with y = k
    probability: Table  # (C, cells of p): rows and sum of p_k
    by_true: ClassSums
    confusion_pair: Counts  # true * C + predicted, sorted
    confusion_count: Counts
    kept: KeptRows | None
    class_weights: Sums | None = None  # pi_target / pi_data for each true class
    sampled: SampledRows | None = None  # some whole rows; none of two classes

    def __add__(self, other: Statistics) -> Statistics:
        if (self.classes, self.order) != (other.classes, other.order):
            raise DataError(f"statistics of {self.classes} and of {other.classes} classes cannot be added")
        if self.class_weights is not None or other.class_weights is not None:
            raise ValueError("add statistics first, weight the sum after")
        kept = None
        if self.kept is not None and other.kept is not None and self.rows + other.rows <= ROWS_KEPT:
            kept = self.kept + other.kept
        pair, index = np.unique(np.concatenate([self.confusion_pair, other.confusion_pair]), return_inverse=True)
        count = np.zeros(len(pair), np.int64)
        np.add.at(count, index, np.concatenate([self.confusion_count, other.confusion_count]))
        return Statistics(
            self.classes,
            self.order,
            self.right + other.right,
            self.wrong_by_predicted + other.wrong_by_predicted,
            self.wrong_by_true + other.wrong_by_true,
            self.all_right + other.all_right,
            self.all_wrong + other.all_wrong,
            add_counts(self.positive, other.positive),
            self.probability + other.probability,
            self.by_true + other.by_true,
            pair,
            count,
            kept,
            sampled=None if self.sampled is None or other.sampled is None else self.sampled + other.sampled,
        )

    def weighted(self, class_weights: ArrayLike | None) -> Statistics:
        """The same rows, each counting `class_weights[label]`: how the metrics would be under another class prior."""
        if class_weights is None:
            return replace(self, class_weights=None)
        w = np.asarray(class_weights, np.float64)
        if w.shape != (self.classes,) or not np.isfinite(w).all() or (w < 0).any():
            raise DataError(f"class weights must be {self.classes} finite numbers >= 0")
        total = float(w @ self.by_true.rows)
        if total <= 0:
            raise DataError("the classes that occur all have weight 0")
        return replace(self, class_weights=w * (self.rows / total))  # mean weight one: only ratios matter

    # ---- sizes ----

    @property
    def rows(self) -> int:
        return int(self.by_true.rows.sum())

    @cached_property
    def weights(self) -> Sums:
        """Weight of each true class; ones where nothing is weighted."""
        return np.ones(self.classes) if self.class_weights is None else self.class_weights

    @cached_property
    def effective_rows(self) -> float:
        """(sum w)^2 / sum w^2: rows of equal weight that would be as informative."""
        n = self.by_true.rows
        return float((self.weights @ n) ** 2 / (self.weights**2 @ n))

    @cached_property
    def exact_rows(self) -> bool:
        """Whether ranking and equal-mass metrics come from rows, not from cells."""
        return self.kept is not None

    @property
    def grid(self) -> Grid:
        return grid(100)

    # ---- bins ----

    def cells(self) -> Bins:
        """Every cell of order 100 as a bin, all classes."""
        if self.class_weights is None:
            n = self.all_right.count + self.all_wrong.count
            return Bins(
                n,
                n.astype(np.float64),
                self.all_right.total + self.all_wrong.total,
                self.all_right.count.astype(np.float64),
            )
        right_n, right_sum = self.right.over_classes(self.weights)
        wrong_n, wrong_sum = self.wrong_by_true.over_classes(self.weights)
        rows = (self.right.count + self.wrong_by_true.count).sum(axis=0)
        return Bins(rows, right_n + wrong_n, right_sum + wrong_sum, right_n)

    def cell_grid(self) -> Grid:
        """The grid of `cells`: weighted ones are by true class, so as coarse as the per-class grid."""
        return grid(100) if self.class_weights is None else grid(self.order)

    def bins(self, count: int = 15) -> Bins:
        """Equal-width bins: from the cells where they make them up exactly, else from the rows."""
        count = check_bins(count)
        if self.cell_grid().exact(count):
            return _merge(self.cells(), self.cell_grid().bins(count), count)
        kept = self._rows_for(count)
        weights = None if self.class_weights is None else self.weights[kept.label]
        return equal_width(kept.confidence, kept.correct, count, weights)

    def confidence_squares(self, count: int = 15) -> Sums:
        """Sum over each bin of weight * confidence^2; cells count as points, which they nearly are."""
        if self.cell_grid().exact(count):
            cells = self.cells()
            return sums(self.cell_grid().bins(count), cells.weight * cells.confidence**2, count)
        kept = self._rows_for(count)
        return sums(equal_width_index(kept.confidence, count), self.weights[kept.label] * kept.confidence**2, count)

    def weight_squares(self, count: int = 15) -> Sums | None:
        """Sum over each bin of squared weights; None where nothing is weighted."""
        if self.class_weights is None:
            return None
        if self.cell_grid().exact(count):
            by_cell = (self.weights**2) @ (self.right.count + self.wrong_by_true.count)
            return sums(self.cell_grid().bins(count), by_cell, count)
        kept = self._rows_for(count)
        return sums(equal_width_index(kept.confidence, count), self.weights[kept.label] ** 2, count)

    def _rows_for(self, count: int) -> KeptRows:
        if self.kept is None:
            raise ConfigError(
                f"{count} bins cannot be made from statistics of {self.rows:,} rows",
                fix=f"use at most {self.cell_grid().order} bins",
            )
        return self.kept

    def predicted_class_cells(self, predicted: int | Iterable[int]) -> Bins:
        """Cells of the per-class grid as bins: rows by what was predicted (one class, or a group of them).

        The weights of a target prior do not apply: they belong to true classes.
        """
        chosen = [predicted] if isinstance(predicted, (int, np.integer)) else list(predicted)
        right_n, right_sum = self.right.count[chosen].sum(axis=0), self.right.total[chosen].sum(axis=0)
        wrong = self.wrong_by_predicted
        n = right_n + wrong.count[chosen].sum(axis=0)
        return Bins(n, n.astype(np.float64), right_sum + wrong.total[chosen].sum(axis=0), right_n.astype(np.float64))

    def predicted_class_bins(self, predicted: int | Iterable[int], count: int = 15) -> Bins:
        """The same in equal-width bins, at most `order` of them."""
        count = min(check_bins(count), self.order)
        return _merge(self.predicted_class_cells(predicted), grid(self.order).bins(count), count)

    def class_probability_bins(self, k: int, count: int = 15) -> Bins:
        """Equal-width bins of p_k against y = k, unweighted, in at most `order` bins."""
        cells = Bins(
            self.probability.count[k],
            self.probability.count[k].astype(np.float64),
            self.probability.total[k],
            self.positive[k].astype(np.float64),
        )
        count = min(check_bins(count), self.order)
        return _merge(cells, grid(self.order).bins(count), count)

    def class_bins(self, count: int = 15) -> tuple[Sums, Sums, Sums, Sums]:
        """Bins of every p_k at once, (C, bins): rows, sum of p, rows with y = k, sum of p^2 (cells taken as points)."""
        count = min(check_bins(count), self.order)
        start = np.searchsorted(grid(self.order).bins(count), np.arange(count), side="left")
        n = self.probability.count.astype(np.float64)
        squares = np.divide(self.probability.total**2, n, out=np.zeros_like(n), where=n > 0)
        out = []
        for values in (n, self.probability.total, self.positive.astype(np.float64), squares):
            reached = np.concatenate([np.zeros((self.classes, 1)), np.cumsum(values, axis=1)], axis=1)
            out.append(np.diff(reached[:, np.append(start, values.shape[1])], axis=1))
        return out[0], out[1], out[2], out[3]

    # ---- classes ----

    @cached_property
    def confusion(self) -> tuple[Counts, Counts, Counts]:
        """True class, predicted class, rows, of the pairs that occur."""
        return self.confusion_pair // self.classes, self.confusion_pair % self.classes, self.confusion_count

    @cached_property
    def right_rows(self) -> Counts:
        rows: Counts = self.right.count.sum(axis=1)
        return rows

    @cached_property
    def predicted_rows(self) -> Counts:
        rows: Counts = self.right_rows + self.wrong_by_predicted.count.sum(axis=1)
        return rows

    def mean_by_class(self, values: NDArray[Any]) -> float:
        """Weighted mean over rows of something summed by true class."""
        return float(self.weights @ values / (self.weights @ self.by_true.rows))


def _merge(cells: Bins, index: Counts, count: int) -> Bins:
    def add(values: NDArray[Any]) -> Sums:
        return sums(index, values, count)

    return Bins(
        np.rint(add(cells.rows)).astype(np.int64), add(cells.weight), add(cells.confidence_sum), add(cells.correct_sum)
    )


def for_file(
    path: str | Path,
    formula: Formula | None = None,
    *,
    cache: bool = True,
    file: PredictionsFile | None = None,
    engine: Engine = "calibrant",
) -> Statistics:
    """Statistics of the labelled rows of a predictions file or folder, through a formula.

    They are written beside the file and read from there while the predictions are the same; see `sidecar`.
    """
    from calibrant.calibration.statistics.sidecar import statistics_for_file

    return statistics_for_file(Path(path), formula, cache=cache, file=file, engine=engine)
