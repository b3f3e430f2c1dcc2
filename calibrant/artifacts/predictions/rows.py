"""Predictions in memory: a file, or a part of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.predictions.source import Source
from calibrant.artifacts.predictions.writer import PredictionsWriter

OUT_OF_FOLD = "oof"  # split of rows that were judged by models trained without their fold
FOLD = "fold"  # the group that says which


@dataclass(frozen=True)
class Predictions:
    """A predictions file, or a part of one, in memory. A label of -1 is unknown.

    Independent labels stand in `present` (N, L): 1, 0, or -1 where unknown; `labels` are then all -1.
    """

    ids: tuple[str, ...]
    labels: NDArray[np.int64]  # (N,)
    logits: NDArray[np.float32]  # (N, C)
    source: Source
    features: NDArray[np.float32] | None = None  # (N, D)
    split: tuple[str, ...] | None = None
    label_names: tuple[str | None, ...] | None = None  # of the data, where some are no classes of the model
    present: NDArray[np.int8] | None = None  # (N, L)
    weights: NDArray[np.float64] | None = None  # (N,)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n, c = self.logits.shape
        if len(self.ids) != n or self.labels.shape != (n,):
            raise ValueError(f"{len(self.ids)} ids and {self.labels.shape[0]} labels for {n} rows of logits")
        if c != len(self.source.class_names):
            raise ValueError(f"{c} logits a row but {len(self.source.class_names)} class names")
        if (self.present is None) == self.source.independent:
            raise ValueError("independent labels, and only they, stand in a matrix")
        if self.present is not None and self.present.shape != (n, c):
            raise ValueError(f"labels have shape {self.present.shape} for logits of {self.logits.shape}")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.source.class_names

    def __repr__(self) -> str:
        from calibrant.artifacts.predictions.shown import line

        return f"<Predictions: {line(self)}>"

    def _repr_html_(self) -> str:
        from calibrant.artifacts.predictions.shown import as_html

        return as_html(self)

    def labelled(self) -> Predictions:
        """The rows whose label is known; of independent ones, any of them."""
        known = self.labels >= 0 if self.present is None else (self.present >= 0).any(axis=1)
        keep = np.flatnonzero(known)
        if len(keep) == len(self):
            return self
        return self.rows(keep)

    def rows(self, index: NDArray[np.intp]) -> Predictions:
        return Predictions(
            tuple(self.ids[i] for i in index),
            self.labels[index],
            self.logits[index],
            self.source,
            None if self.features is None else self.features[index],
            None if self.split is None else tuple(self.split[i] for i in index),
            None if self.label_names is None else tuple(self.label_names[i] for i in index),
            None if self.present is None else self.present[index],
            None if self.weights is None else self.weights[index],
            {name: tuple(values[i] for i in index) for name, values in self.groups.items()},
        )

    def write(self, path: str | Path) -> None:
        with PredictionsWriter(path, self.source) as writer:
            writer.append(
                self.ids,
                self.labels,
                self.logits,
                features=self.features,
                split=self.split,
                label_names=self.label_names,
                present=self.present,
                weights=self.weights,
                groups=self.groups,
            )


def concatenated(parts: Sequence[Predictions], source: Source) -> Predictions:
    """What only some parts have is left out."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        empty = np.zeros((0, len(source.class_names)), np.float32)
        present = empty.astype(np.int8) if source.independent else None
        return Predictions((), np.zeros(0, np.int64), empty, source, present=present)
    features = [p.features for p in parts if p.features is not None]
    splits = [p.split for p in parts if p.split is not None]
    named = [p.label_names for p in parts if p.label_names is not None]
    known = [p.present for p in parts if p.present is not None]
    weights = [p.weights for p in parts if p.weights is not None]
    groups = {name for p in parts for name in p.groups if all(name in other.groups for other in parts)}
    return Predictions(
        tuple(i for p in parts for i in p.ids),
        np.concatenate([p.labels for p in parts]),
        np.concatenate([p.logits for p in parts]),
        source,
        np.concatenate(features) if len(features) == len(parts) else None,
        tuple(s for split in splits for s in split) if len(splits) == len(parts) else None,
        tuple(n for names in named for n in names) if len(named) == len(parts) else None,
        np.concatenate(known) if known else None,
        np.concatenate(weights) if len(weights) == len(parts) else None,
        {name: tuple(g for p in parts for g in p.groups[name]) for name in sorted(groups)},
    )
