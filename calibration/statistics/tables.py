"""What statistics are made of: tables over cells, sums by true class, and rows that are kept."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

ROWS_KEPT = 100_000
Counts = NDArray[np.int64]
# Four bytes while they suffice: the tables are most of the memory.
CellCounts = NDArray[np.int32] | NDArray[np.int64]
Sums = NDArray[np.float64]


def class_order(classes: int) -> int:
    """Order of the per-class grids: 50 where classes are few, 15 where the tables would grow large; 5 in extremis."""
    for order, most in ((50, 64), (15, 16384)):
        if classes <= most:
            return order
    return 5


def add_counts(a: CellCounts, b: CellCounts) -> CellCounts:
    """In four bytes where no cell can overflow, in eight beyond."""
    small = int(a.max(initial=0)) + int(b.max(initial=0)) < 2**31
    kind = np.int32 if small else np.int64
    out: CellCounts = a.astype(kind, copy=False) + b.astype(kind, copy=False)
    return out


@dataclass(frozen=True)
class Table:
    """Rows and sum of confidence over (class, cell), or over cells alone."""

    count: CellCounts
    total: Sums

    def __add__(self, other: Table) -> Table:
        return Table(add_counts(self.count, other.count), self.total + other.total)

    def over_classes(self, weights: Sums | None = None) -> tuple[Sums, Sums]:
        if weights is None:
            return self.count.sum(axis=0).astype(np.float64), self.total.sum(axis=0)
        return weights @ self.count, weights @ self.total


@dataclass(frozen=True)
class ClassSums:
    """By true class, (C,) each."""

    rows: Counts
    top5: Counts
    zero: Counts  # labels that were given probability 0: their NLL is infinite and left out of the sums
    nll: Sums
    nll_squared: Sums
    brier: Sums
    brier_squared: Sums
    entropy: Sums
    p_squared: Sums

    def __add__(self, other: ClassSums) -> ClassSums:
        return ClassSums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(ClassSums)))


@dataclass(frozen=True)
class KeptRows:
    confidence: Sums
    label: NDArray[np.int32]
    correct: NDArray[np.bool_]

    def __add__(self, other: KeptRows) -> KeptRows:
        return KeptRows(
            np.concatenate([self.confidence, other.confidence]),
            np.concatenate([self.label, other.label]),
            np.concatenate([self.correct, other.correct]),
        )
