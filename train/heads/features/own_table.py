"""Features that somebody else computed, in any format that tables are read from, as a cache in memory.

Where the table is not divided, a fifth is kept for the test (seed 42): of the groups where it has any, so that no
plant, patient or burst stands on both sides, and another fifth of the groups validates. Where it is, the validation
that it lacks is a fifth of the training groups.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.foreign.feature_table import FeatureTable, read_features
from calibrant.errors import DataError, did_you_mean
from calibrant.train.data.split import grouped, stratified
from calibrant.train.heads.features.cache import FeatureCache, FeatureRows, Manifest

log = logging.getLogger(__name__)
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
        if len(np.unique(table.labels)) < 2:
            only = (table.class_names or ())[int(table.labels[0])]
            raise DataError(f'every label is "{only}": a classifier needs two classes', where=path)
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
    names, groups = tuple(table.class_names or ()), next(iter(table.groups.values()), None)
    if table.split is not None:
        column = np.asarray(table.split)
        found = {str(name): np.flatnonzero(column == name) for name in dict.fromkeys(table.split)}
        if "train" not in found:
            raise DataError(f"has no split train (it has {', '.join(found)})", where=where)
        return found if groups is None else _by_group(table.labels, np.asarray(groups), found, names, where)
    if groups is not None:
        test, val, train = grouped(table.labels, groups, [TEST_SHARE, TEST_SHARE], class_names=names, seed=SEED)
        if not len(test) or not len(val):
            raise DataError(
                f"its {len(set(groups))} groups cannot be divided into training, validation and test",
                where=where,
                fix="give finer groups, or a column `split`",
            )
        return {"train": train, "val": val, "test": test}
    test, train = stratified(table.labels, [TEST_SHARE], class_names=names, seed=SEED)
    return {"train": train, "test": test}


def _by_group(
    labels: NDArray[np.int64], groups: NDArray[Any], found: dict[str, NDArray[Any]], names: tuple[str, ...], where: Path
) -> dict[str, NDArray[Any]]:
    """The table's own splits, and a fifth of the training groups where it has no val; groups on two sides are told."""
    train = found["train"]
    for split, rows in found.items():
        shared = set(groups[rows]) & set(groups[train]) if split != "train" else set()
        if shared:
            many, name = len(set(groups[rows])), where.name
            text = "%s: %d of the %d groups of %s are in train too, so its figures are better than those of new groups"
            log.warning(text, name, len(shared), many, split)
    if "val" in found:
        return found
    try:
        val, rest = grouped(labels[train], groups[train], [TEST_SHARE], class_names=names, seed=SEED)
    except DataError:  # a class has one group only
        val = rest = np.empty(0, np.intp)
    if not len(val):
        log.warning("%s: too few groups in train to part them; validation rows are drawn whatever theirs", where.name)
        return found
    return {**found, "train": train[rest], "val": train[val]}
