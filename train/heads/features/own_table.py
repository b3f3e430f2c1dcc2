"""Features that somebody else computed, in any format that tables are read from, as a cache in memory.

Where the table is not divided, a fifth is kept for the test (seed 42): of the groups where it has any, so that no
plant, patient or burst stands on both sides, and another fifth of the groups validates.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.foreign.feature_table import FeatureTable, read_features
from calibrant.errors import DataError, did_you_mean
from calibrant.train.data.split import grouped, stratified
from calibrant.train.heads.features.cache import FeatureCache, FeatureRows, Manifest

VIEW = "eval"
TEST_SHARE = 0.2
SEED = 42


class TableFeatures(FeatureCache):
    """One view, no backbone: heads are trained and judged on it, and not exported as networks of pictures."""

    def __init__(self, path: Path, manifest: Manifest, table: FeatureTable, index: dict[str, NDArray[Any]]) -> None:
        super().__init__(path, manifest)
        self._table, self._index = table, index

    @property
    def has_backbone(self) -> bool:
        return False

    @classmethod
    def read_file(cls, path: Path) -> TableFeatures:
        table = read_features(path)
        if table.class_names is None or not (table.labels >= 0).any():
            raise DataError("has no labels to train on", where=path, fix="add a column `label`")
        table = table.rows(np.flatnonzero(table.labels >= 0))
        index = divided(table, path)
        digest = hashlib.sha256(table.features.tobytes() + table.labels.tobytes()).hexdigest()
        names = tuple(table.class_names or ())
        manifest = Manifest(
            model={"name": path.name, "options": {}, "sha256": digest, "weights": None},
            preprocessing={},
            pooling="head",
            width=table.features.shape[1],
            tokens=1,
            storage="float32",
            amp="none",
            seed=SEED,
            block=len(table),
            class_names=names,
            splits={name: len(rows) for name, rows in index.items()},
            images={name: digest for name in index},
        )
        return cls(path, manifest, table, index)

    def missing(self, split: str, view: str) -> list[int]:
        return []

    def read(self, split: str, view: str = VIEW) -> FeatureRows:
        if split not in self._index:
            raise DataError(f'has no split "{split}"', where=self.path, fix=did_you_mean(split, self._index))
        if view != VIEW:
            raise DataError(f'has no view "{view}": a table holds one, "{VIEW}"', where=self.path)
        part = self._table.rows(self._index[split])
        return FeatureRows(part.ids, part.labels, part.features)


def divided(table: FeatureTable, where: Path) -> dict[str, NDArray[Any]]:
    """Rows of each split: its own, or a fifth for the test."""
    if table.split is not None:
        column = np.asarray(table.split)
        found = {str(name): np.flatnonzero(column == name) for name in dict.fromkeys(table.split)}
        if "train" not in found:
            raise DataError(f"has no split train (it has {', '.join(found)})", where=where)
        return found
    names = tuple(table.class_names or ())
    if table.groups:
        groups = next(iter(table.groups.values()))
        test, val, train = grouped(table.labels, groups, [TEST_SHARE, TEST_SHARE], class_names=names, seed=SEED)
        return {"train": train, "val": val, "test": test}
    test, train = stratified(table.labels, [TEST_SHARE], class_names=names, seed=SEED)
    return {"train": train, "test": test}
