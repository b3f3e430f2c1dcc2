"""What is judged: everything that an evaluation knows about one model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.evaluation import Evaluation, RowGroup
from calibrant.calibration.populations import Population
from calibrant.calibration.statistics.statistics import Statistics
from calibrant.calibration.verdict.verdict import CauseKind, RemedyKind

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class JudgedRows:
    """Rows as they were judged, or a fair sample of `of` such rows. Logits (N, C): as given, and as judged."""

    plain: Matrix
    judged: Matrix
    labels: Labels
    of: int
    weights: NDArray[np.float64] | None = None  # of each class, where a target prior counts
    groups: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # a value for each row
    features: NDArray[Any] | None = None  # (N, D), where the calibrator reads them

    def __len__(self) -> int:
        return len(self.labels)

    def fewer(self, rows: int) -> JudgedRows:
        """At most so many, at random."""
        if len(self) <= rows:
            return self
        chosen = np.sort(np.random.default_rng(0).permutation(len(self))[:rows])
        plain = self.plain[chosen]
        judged = plain if self.judged is self.plain else self.judged[chosen]
        groups = {column: [values[i] for i in chosen] for column, values in self.groups.items()}
        features = None if self.features is None else self.features[chosen]
        return JudgedRows(plain, judged, self.labels[chosen], self.of, self.weights, groups, features)


@dataclass(frozen=True)
class Trial:
    """Something to be tried against causes: gives logits (N, C) for rows, none of which was judged by itself."""

    kind: RemedyKind
    against: frozenset[CauseKind]
    text: str  # what is done, in the imperative
    command: str | None
    logits: Callable[[JudgedRows], Matrix]
    after: frozenset[RemedyKind] = frozenset()  # tried only where those of these kinds leave half of the error or more


@dataclass(frozen=True)
class Case:
    """`meant`: the class shares that the confidence is for; `found`: those of the rows that judge it.

    `applied`: what stands between the logits and the confidence, "calibrator" or "correction" (of the class prior).
    """

    evaluation: Evaluation
    statistics: Statistics
    class_names: Sequence[str] = ()
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict)
    row_groups: Sequence[RowGroup] = ()  # weighted as the statistics are
    in_sample: bool = False  # judged on the rows that its calibrator was fitted on
    meant: Population | None = None
    found: Population | None = None
    applied: str | None = None
    rows: Callable[[], JudgedRows] | None = None
    trials: Sequence[Trial] = ()
    labels_call: str | None = None  # what tells how many labels are needed

    def name(self, k: int) -> str:
        return self.class_names[k] if self.class_names else str(k)
