"""Rows of numbers with their labels, in any format that predictions are read from: features, or what a classifier of
tables takes.

The numbers are one matrix (`features`, `embeddings`, `X`, ...), a matrix for each split (`x_train`, `test_features`),
or all columns of numbers that have no other role. Labels, ids, split and groups are known by the names that predictions
have for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.foreign.columns import Column, text_column
from calibrant.artifacts.foreign.formats import read_columns
from calibrant.artifacts.foreign.labels import read_labels
from calibrant.artifacts.foreign.roles import FEATURES, GROUPS, IDS, LABELS, NAMES, SPLITS, flattened, told
from calibrant.errors import DataError
from calibrant.images.labels import class_order, split_name

MATRICES = (*FEATURES, "feature", "x", "f", "data", "inputs", "rows")
_SPLIT = re.compile(r"^(?P<first>[a-z_]+?)_(?P<split>train|training|val|valid|validation|dev|test|testing)$")
_TIPS = re.compile(r"^(?P<split>train|training|val|valid|validation|dev|test|testing)_(?P<first>[a-z_]+)$")


@dataclass(frozen=True)
class FeatureTable:
    """`labels` are numbers of `class_names`, -1 where unknown."""

    features: NDArray[np.float32]  # (N, D)
    labels: NDArray[np.int64]
    class_names: tuple[str, ...] | None  # None where there are no labels, nor names of classes
    ids: tuple[str, ...]
    split: tuple[str, ...] | None
    groups: Mapping[str, tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.features)

    def of_split(self, name: str) -> FeatureTable:
        """Its rows; all of them where nothing was divided."""
        if self.split is None:
            return self
        keep = np.flatnonzero(np.asarray(self.split) == name)
        if not len(keep):
            raise DataError(f'has no rows of split "{name}"', fix=f"it has {', '.join(sorted(set(self.split)))}")
        return self.rows(keep)

    def rows(self, keep: NDArray[np.integer[Any]]) -> FeatureTable:
        return FeatureTable(
            self.features[keep],
            self.labels[keep],
            self.class_names,
            tuple(self.ids[i] for i in keep),
            None if self.split is None else tuple(self.split[i] for i in keep),
            {n: tuple(g[i] for i in keep) for n, g in self.groups.items()},
        )


def read_features(path: str | Path, *, class_names: Sequence[str] | None = None) -> FeatureTable:
    """`class_names`: those that the labels are of; else the file's own, or the labels in order."""
    path = Path(path)
    if not path.exists():
        raise DataError("no such file", where=path)
    left = {name: flattened(column) for name, column in read_columns(path).values.items()}
    own = _take(left, NAMES)
    by_split = _by_split(left, path)
    split: list[str] | None
    if by_split is not None:
        features, labels, split = by_split
        left = {}
        ids: Column | None = None
        groups: dict[str, Column] = {}
    else:
        labels, ids, split_column = _take(left, LABELS), _take(left, IDS), _take(left, SPLITS)
        split = None if split_column is None else [split_name(str(s)) for s in split_column]
        groups = {n: left.pop(n) for n in list(left) if n.lower() in GROUPS or n.lower().startswith("group_")}
        features = _matrix(left, path)
    n = len(features)
    if not n or not np.isfinite(features).all():
        bad = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0]) + 1 if n else 0
        raise DataError(f"features of row {bad} are not finite" if n else "holds no rows", where=path)
    for what, column in (("labels", labels), ("ids", ids), ("splits", split), *groups.items()):
        if column is not None and len(column) != n:
            raise DataError(f"has {len(column):,} {what} for {n:,} rows of features", where=path)
    names = tuple(class_names) if class_names is not None else None if own is None else tuple(map(str, own))
    names = names or _names(labels)
    y = np.full(n, -1, np.int64)
    if labels is not None and names is not None:
        found = read_labels(
            labels, rows=n, names=names, classes=len(names), independent=False, where=path
        )  # by name, never by position
        y = y if found.numbers is None else found.numbers
    return FeatureTable(
        features.astype(np.float32),
        y,
        names,
        tuple(f"{path.stem}/{i}" for i in range(n)) if ids is None else tuple(map(str, ids)),
        None if split is None else tuple(split),
        {("group" if k.lower() in GROUPS else k[len("group_") :]): tuple(map(str, v)) for k, v in groups.items()},
    )


def _take(left: dict[str, Column], known: Sequence[str]) -> Column | None:
    name = next((n for k in known for n in left if n.strip().lower() == k), None)
    return None if name is None else left.pop(name)


def _names(labels: Column | None) -> tuple[str, ...] | None:
    if labels is None:
        return None
    if labels.ndim == 2 and labels.shape[1] > 1:
        return tuple(map(str, range(labels.shape[1])))  # one-hot
    flat = labels.reshape(-1)
    if flat.dtype == object:
        return class_order(str(v) for v in flat if v is not None and v != "")
    known = flat[np.isfinite(flat.astype(np.float64))]
    known = known[known >= 0]
    return tuple(str(k) for k in range(int(known.max()) + 1)) if len(known) else None


def _by_split(left: dict[str, Column], path: Path) -> tuple[Column, Column | None, list[str]] | None:
    """x_train, y_train, x_test, y_test, or train_features and train_labels."""
    if any(name.lower() in LABELS for name in left):
        return None
    found: dict[str, dict[str, Column]] = {}
    for name, column in left.items():
        match = _SPLIT.match(name.lower()) or _TIPS.match(name.lower())
        if match is None:
            continue
        first = match.group("first")
        role = "features" if first in MATRICES and column.ndim == 2 else "labels" if first in LABELS else ""
        if role:
            found.setdefault(split_name(match.group("split")), {})[role] = column
    parts = {split: roles for split, roles in found.items() if "features" in roles}
    if not parts:
        return None
    features, labels, split = [], [], []
    for name, roles in parts.items():
        x, y = roles["features"], roles.get("labels")
        if y is not None and len(y) != len(x):
            raise DataError(f"has {len(y):,} labels for {len(x):,} rows of {name}", where=path)
        features.append(x)
        labels.append(np.full(len(x), -1) if y is None else y)
        split += [name] * len(x)
    widths = {x.shape[1] for x in features}
    if len(widths) > 1:
        raise DataError(f"features of its splits differ in width: {sorted(widths)}", where=path)
    words = any(y.dtype == object for y in labels)
    joined = text_column(v for y in labels for v in y) if words else np.concatenate(labels)
    return np.concatenate(features), joined, split


def _matrix(left: dict[str, Column], path: Path) -> Column:
    matrices = {n: c for n, c in left.items() if c.dtype != object and c.ndim == 2}
    named = [n for k in MATRICES for n in matrices if n.strip().lower() == k]
    if named or len(matrices) == 1:
        return matrices[(named or list(matrices))[0]].astype(np.float64)
    if matrices:
        raise DataError(
            f"several columns could be the features: {', '.join(matrices)}", where=path, fix="call one `features`"
        )
    single = {
        n: c for n, c in left.items() if c.dtype != object and c.ndim == 1 and not n.lower().startswith("unnamed")
    }
    if not single:
        held = ", ".join(told(n, c) for n, c in list(left.items())[:8]) or "nothing but labels"
        raise DataError(f"has no features (it has {held})", where=path, fix="call the matrix `features`")
    names = list(single)
    bare = [re.sub(r"^.*?(\d+)$", r"\1", n) for n in names]
    if all(b.isdigit() for b in bare):
        names = [n for _, n in sorted(zip(map(int, bare), names, strict=True))]
    return np.stack([single[n].astype(np.float64) for n in names], axis=1)
