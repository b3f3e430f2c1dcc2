"""Foreign predictions as ours: `read_foreign` for files, `from_columns` for what is in memory already."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.foreign.columns import Column, Columns
from calibrant.artifacts.foreign.formats import read_columns
from calibrant.artifacts.foreign.kinds import Kind, tell
from calibrant.artifacts.foreign.labels import Labelled, read_labels, several
from calibrant.artifacts.foreign.outcome import Outcome
from calibrant.artifacts.foreign.roles import Named, Roles, assign
from calibrant.artifacts.predictions import Predictions, Source
from calibrant.errors import DataError


@dataclass(frozen=True)
class Asked:
    """What the user says about a file; all else is told from it."""

    kind: Kind | None = None
    outcome: Outcome | None = None
    named: Named = field(default_factory=Named)
    class_names: tuple[str, ...] | None = None
    train_prior: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Foreign:
    """`kind`: what the scores were. `notes`: what had to be decided."""

    predictions: Predictions
    kind: Kind
    notes: tuple[str, ...]
    files: tuple[Path, ...]


def read_foreign(*paths: Path, asked: Asked = Asked()) -> Foreign:
    """One file; or several that hold one column each, as logits.npy, labels.npy and ids.npy do."""
    for path in paths:
        if not path.exists():
            raise DataError("no such file", where=path)
    if len(paths) == 1:
        columns = read_columns(paths[0])
        return replace(from_columns(columns, paths[0], asked), files=(paths[0], *columns.beside))
    values: dict[str, Column] = {}
    names: tuple[str, ...] | None = None
    for path in paths:
        found = read_columns(path)
        names = names or found.class_names
        for name, column in found.values.items():
            if name in values and not np.array_equal(values[name], column):
                raise DataError(f"column `{name}` is in another file too", where=path)
            values[name] = column
    return replace(from_columns(Columns(values, names), paths[0], asked), files=paths)


def from_columns(columns: Columns, where: Path, asked: Asked = Asked()) -> Foreign:
    roles = assign(columns, asked.named, where)
    scores = _scores(roles, where)
    n = len(scores)
    if n == 0:
        raise DataError("holds no rows", where=where)
    outcome = asked.outcome or ("independent" if several(roles.labels) else "exclusive")
    told = tell(scores, outcome=outcome, asked=asked.kind, where=where)
    logits, classes = told.logits, told.logits.shape[1]
    given, columns_named = _given_names(roles, asked, classes, where), _named_columns(roles, classes)
    if given is not None and columns_named is not None:
        logits = logits[:, [columns_named.index(name) for name in given]]
    names = given or columns_named or tuple(map(str, range(classes)))
    labels = read_labels(
        roles.labels,
        rows=n,
        names=given or columns_named,
        classes=classes,
        independent=outcome == "independent",
        where=where,
    )
    prior = asked.train_prior
    if prior is None and roles.train_prior is not None:
        prior = tuple(float(v) for v in roles.train_prior)
    if prior is not None and len(prior) != classes:
        raise DataError(f"the training prior has {len(prior)} shares for {classes} classes", where=where)
    source = Source(
        names, prior, outcome=outcome, rounded=told.rounded if told.rounded and told.rounded.hides else None
    )
    predictions = _predictions(roles, labels, logits.astype(np.float32), source, where)
    return Foreign(predictions, told.kind, (*roles.notes, *told.notes, *_misnamed(columns, told.kind, asked)), ())


def _misnamed(columns: Columns, kind: Kind, asked: Asked) -> tuple[str, ...]:
    """Columns are told by their values: what is called logits and is none is said."""
    if asked.kind is not None or kind in ("logits", "log-probabilities"):
        return ()
    names = [name for name in columns.values if name.strip().lower().startswith("logit")]
    if not names:
        return ()
    insist = "" if kind == "probabilities" else "; --kind logits insists on the name"  # which these never are
    return (f"`{names[0]}` holds {kind} by its values, and is read as such{insist}",)


def _scores(roles: Roles, where: Path) -> NDArray[np.float64]:
    if roles.scores.ndim != 2 or roles.scores.shape[1] < 1:
        raise DataError(f"scores have shape {roles.scores.shape}, expected (rows, classes)", where=where)
    return roles.scores


def _given_names(roles: Roles, asked: Asked, classes: int, where: Path) -> tuple[str, ...] | None:
    given = asked.class_names or roles.class_names
    if given is None:
        return None
    if len(given) != classes:
        raise DataError(f"{len(given)} class names for {classes} classes", where=where)
    if len(set(given)) != classes:
        raise DataError("two classes have the same name", where=where)
    columns = _named_columns(roles, classes)
    if columns is not None and set(columns) != set(given):
        missing = next(name for name in given if name not in columns)
        raise DataError(f'no column of scores is called after class "{missing}"', where=where, fix="join by name")
    return given


def _named_columns(roles: Roles, classes: int) -> tuple[str, ...] | None:
    """Names of the classes by their columns; None where those are but numbered from 0."""
    names = roles.score_names
    if names is None or len(names) != classes or names == tuple(map(str, range(classes))):
        return None
    return names


def _predictions(
    roles: Roles, labels: Labelled, logits: NDArray[np.float32], source: Source, where: Path
) -> Predictions:
    n = len(logits)
    for name, column in (("ids", roles.ids), ("split", roles.split), *roles.groups.items()):
        if column is not None and len(column) != n:
            raise DataError(f"has {len(column):,} {name} for {n:,} rows of scores", where=where)
    return Predictions(
        tuple(map(str, range(n))) if roles.ids is None else tuple(_text(v) for v in roles.ids),
        labels.numbers if labels.numbers is not None else np.full(n, -1, np.int64),
        logits,
        source,
        None if roles.features is None or roles.features.ndim != 2 else roles.features.astype(np.float32),
        None if roles.split is None else tuple(_text(v) for v in roles.split),
        present=labels.present,
        weights=None if roles.weights is None else _weights(roles.weights, n, where),
        groups={name: tuple(_text(v) for v in column) for name, column in roles.groups.items()},
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _weights(column: Column, rows: int, where: Path) -> NDArray[np.float64]:
    if column.dtype == object or column.shape != (rows,):
        raise DataError(f"weights have shape {column.shape} for {rows} rows", where=where)
    weights = column.astype(np.float64)
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise DataError("weights must be finite, not negative and not all zero", where=where)
    return weights
