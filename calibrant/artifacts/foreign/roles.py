"""Which column is what. Names decide the roles, never whether scores are logits or probabilities.

Scores are one matrix, or a column for each class: those with a common beginning (`logit_cat`, `p_dog`, `prob_0`), else
all numbers that have no other role. What is asked for by name wins; what is not read is said.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrant.artifacts.foreign.columns import Column, Columns
from calibrant.errors import DataError, did_you_mean

MATRICES = (
    "logits", "logit", "log_probabilities", "log_probs", "logprobs", "probabilities", "probability", "probs", "prob",
    "proba", "pred_probs", "pred_proba", "predict_proba", "y_prob", "y_proba", "y_score", "scores", "score",
    "predictions", "outputs", "output", "softmax", "sigmoid",
)  # fmt: skip
LABELS = (
    "label", "labels", "target", "targets", "y_true", "y", "true_label", "true_class", "truth", "ground_truth", "gt",
    "class_id", "label_id", "label_ids", "gt_label", "gt_labels", "class",
)  # fmt: skip
IDS = (
    "id", "ids", "filename", "file_name", "file", "path", "image", "image_id", "image_path", "sample_id", "uid",
    "index", "__index_level_0__", "unnamed: 0",
)  # fmt: skip
WEIGHTS = ("weight", "weights", "sample_weight", "sample_weights")
SPLITS = ("split", "subset", "fold")
GROUPS = ("group", "groups")
NAMES = ("classes", "class_names", "classes_", "label_names", "names")
PRIORS = ("train_prior", "class_prior", "prior")
FEATURES = ("features", "embeddings", "embedding", "hidden")
# Numbers that many tools write beside the scores.
SIDE = (
    "pred", "prediction", "predicted", "y_pred", "pred_label", "predicted_label", "predicted_class", "confidence",
    "conf", "max_prob", "maxprob", "msp", "top1", "loss", "entropy", "uncertainty", "correct", "margin", "epoch",
)  # fmt: skip
_PREFIX = re.compile(
    r"^(logits?|log_probs?|log_proba|probs?|probabilities|probability|proba|predict_proba|p|scores?|outputs?|pred|predictions|class|"
    r"y_prob|y_proba|y_score)[_.\-: ]+(?P<name>.+)$",
    re.IGNORECASE,
)
_LABEL_PREFIX = re.compile(r"^(labels?|targets?|y_true|y|true|gt)[_.\-: ]+(?P<name>.+)$", re.IGNORECASE)


class NoScores(DataError):
    """A table about something else."""


@dataclass(frozen=True)
class Named:
    """Names of columns that the user gives; `scores` may hold patterns."""

    scores: tuple[str, ...] = ()
    label: str | None = None
    id: str | None = None
    weight: str | None = None
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Roles:
    scores: Column  # (N, C) float64, or (N, 1)
    score_names: tuple[str, ...] | None  # of the classes, as the columns name them
    labels: Column | None
    ids: Column | None
    weights: Column | None
    split: Column | None
    groups: Mapping[str, Column]
    class_names: tuple[str, ...] | None
    train_prior: Column | None
    features: Column | None
    notes: tuple[str, ...]


def assign(columns: Columns, named: Named, where: Path) -> Roles:
    left = {name: flattened(column) for name, column in columns.values.items()}
    for name in (*named.groups, *(n for n in (named.label, named.id, named.weight) if n)):
        if name not in left:
            raise DataError(f'has no column "{name}"', where=where, fix=did_you_mean(name, left))

    def take(asked: str | None, known: Sequence[str]) -> Column | None:
        name = asked or next((n for k in known for n in left if n.strip().lower() == k), None)
        return None if name is None else left.pop(name, None)

    notes = list(columns.notes)
    features = take(None, FEATURES)
    groups = {name: left.pop(name) for name in named.groups}
    weights = take(named.weight, WEIGHTS)
    names, prior = _of_classes(left, NAMES), _of_classes(left, PRIORS)
    class_names = columns.class_names if names is None else tuple(str(v) for v in names)
    chosen = _patterns(named.scores, left, where)
    labels = take(named.label, ()) if named.label else (_one_hot(left) if not chosen else None)
    if labels is None and named.label is None:
        labels = _first_label(left, set(chosen))
    ids = take(named.id, IDS)
    split = take(None, SPLITS)
    for name in [n for n in left if n.lower() in GROUPS or n.lower().startswith("group_")]:
        groups["group" if name.lower() in GROUPS else name[len("group_") :]] = left.pop(name)
    scores, score_names, used = _scores(left, chosen, notes, where)
    unread = [n for n in left if n not in used]
    if unread:
        notes.append("not read: " + ", ".join(unread[:10]) + (", ..." if len(unread) > 10 else ""))
    return Roles(scores, score_names, labels, ids, weights, split, groups, class_names, prior, features, tuple(notes))


def flattened(column: Column) -> Column:
    """[N, C, 1, 1], as convolutions leave it, is [N, C]."""
    return column.reshape(column.shape[:2]) if column.ndim > 2 and column[0].size == column.shape[1] else column


def _of_classes(left: dict[str, Column], known: Sequence[str]) -> Column | None:
    """A column that is as long as there are classes, beside those that are as long as there are rows."""
    rows = max(map(len, left.values()), default=0)
    name = next((n for k in known for n in left if n.lower() == k), None)
    if name is None or left[name].ndim != 1 or (len(left[name]) == rows and len(left) > 1 and not _square(left)):
        return None
    return left.pop(name)


def _square(left: dict[str, Column]) -> bool:
    """As many rows as classes, where the length of a list tells nothing."""
    return any(c.ndim == 2 and c.shape[0] == c.shape[1] for c in left.values())


def _first_label(left: dict[str, Column], chosen: set[str]) -> Column | None:
    usable = [n for n in left if n not in chosen and not _fractions(left[n])]  # a class may be called y
    name = next((n for k in LABELS for n in usable if n.strip().lower() == k), None)
    return None if name is None else left.pop(name)


def _fractions(column: Column) -> bool:
    if column.dtype.kind != "f":
        return False
    known = column[np.isfinite(column)]
    return bool((known != np.floor(known)).any())


def _one_hot(left: dict[str, Column]) -> Column | None:
    """label_0, label_1, ... as one matrix, where no single column is called label."""
    if any(n.strip().lower() in LABELS for n in left):
        return None
    found = [n for n in left if _LABEL_PREFIX.match(n) and left[n].ndim == 1 and left[n].dtype != object]
    if len(found) < 2:
        return None
    return np.stack([left.pop(n).astype(np.float64) for n in found], axis=1)


def _patterns(asked: Sequence[str], left: dict[str, Column], where: Path) -> dict[str, str]:
    """Columns, and the class that each is of: what the star of `p_*` stands for, else the name as it is."""
    chosen: dict[str, str] = {}
    for pattern in asked:
        hits = [n for n in left if fnmatch.fnmatchcase(n, pattern) and n not in chosen]
        if not hits and pattern not in chosen:
            raise DataError(f'no column is called "{pattern}"', where=where, fix=did_you_mean(pattern, left))
        beginning = pattern[:-1] if pattern.endswith("*") and pattern.count("*") == 1 else None
        chosen |= {n: _bare(n) if beginning is None else n.removeprefix(beginning) for n in hits}
    return chosen


def _scores(
    left: dict[str, Column], chosen: dict[str, str], notes: list[str], where: Path
) -> tuple[Column, tuple[str, ...] | None, set[str]]:
    usable = {n: c for n, c in left.items() if c.dtype != object}
    if chosen:
        text = next((n for n in chosen if n not in usable), None)
        if text is not None:
            raise DataError(f"column `{text}` holds no numbers", where=where)
        first = next(iter(chosen))
        if len(chosen) == 1 and usable[first].ndim == 2:
            return usable[first].astype(np.float64), None, {first}
        return *_stacked(usable, chosen, where), set(chosen)
    matrices = [n for n, c in usable.items() if c.ndim == 2]
    by_name = [n for k in MATRICES for n in matrices if n.strip().lower() == k]
    if len(by_name) > 1:
        notes.append(f"scores are `{by_name[0]}`, of {', '.join(by_name)}")
    if by_name or len(matrices) == 1:
        name = (by_name or matrices)[0]
        return usable[name].astype(np.float64), None, {name}
    if matrices:
        raise DataError(
            f"several columns could be the scores: {', '.join(matrices)}", where=where, fix="name one with --scores"
        )
    single = [n for n, c in usable.items() if c.ndim == 1 and n.strip().lower() not in SIDE]
    prefixed = [n for n in single if _PREFIX.match(n)]
    if len(prefixed) > 1:
        return *_of_one_prefix(usable, prefixed, notes, where), set(prefixed)
    one = [n for k in MATRICES for n in single if n.strip().lower() == k]
    if one:
        return usable[one[0]].astype(np.float64)[:, None], None, {one[0]}
    floats = [n for n in single if usable[n].dtype.kind == "f"]
    found = floats if floats or len(single) < 2 else single
    if not found:
        held = ", ".join(told(n, c) for n, c in list(left.items())[:8]) or "nothing but labels"
        raise NoScores(
            f"has no column of scores (it has {held})",
            where=where,
            fix="call it logits or probabilities, write a column for each class, or name them: --scores",
        )
    if len(found) == 1:
        return usable[found[0]].astype(np.float64)[:, None], None, {found[0]}
    return *_stacked(usable, {n: n for n in found}, where), set(found)


def told(name: str, column: Column) -> str:
    """With its shape where that is the trouble."""
    return name if column.ndim < 3 else f"{name} {list(column.shape)}, expected [N, C]"


def _of_one_prefix(
    usable: dict[str, Column], prefixed: list[str], notes: list[str], where: Path
) -> tuple[Column, tuple[str, ...]]:
    """Logits before probabilities where both are there."""
    kinds: dict[str, list[str]] = {}
    for name in prefixed:
        match = _PREFIX.match(name)
        assert match is not None
        kinds.setdefault(match.group(1).lower(), []).append(name)
    best = min(kinds, key=lambda k: (-len(kinds[k]), MATRICES.index(k) if k in MATRICES else len(MATRICES)))
    if len(kinds) > 1:
        notes.append(f"scores are {kinds[best][0]}, ... of the beginnings {', '.join(kinds)}")
    names = kinds[best]
    return _stacked(usable, {n: _bare(n) for n in names}, where)


def _bare(name: str) -> str:
    """The class in the name of a column."""
    match = _PREFIX.match(name)
    return match.group("name") if match else name


def _stacked(usable: dict[str, Column], chosen: dict[str, str], where: Path) -> tuple[Column, tuple[str, ...]]:
    """Columns as a matrix; those numbered 0, 1, 2, ... in the order of their numbers."""
    names, bare = list(chosen), list(chosen.values())
    wide = next((n for n in names if usable[n].ndim != 1), None)
    if wide is not None:
        raise DataError(f"column `{wide}` holds lists", where=where, fix="name it alone with --scores")
    if all(b.isdigit() for b in bare):
        order = sorted(range(len(bare)), key=lambda i: int(bare[i]))
        names, bare = [names[i] for i in order], [bare[i] for i in order]
    return np.stack([usable[n].astype(np.float64) for n in names], axis=1), tuple(bare)
