"""Class priors: how they are written, and how they are read.

One grammar wherever a prior is asked for, on a command line, in a TOML file, in a request and on a page:

    uniform                  all classes equally common
    train                    as common as in training
    0.2,0.5,0.3              a number for each class, in order of the classes
    crane=0.2,gull=0.8       by name; `*=1` stands for every class that is not named
    FILE or shares:FILE      JSON (a list, or a table by class), CSV (class,share), or predictions, whose labels count

Numbers are shares or counts. What looks like shares must add up to one; counts are divided by their sum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.errors import ConfigError, DataError, did_you_mean
from calibrant.shares import shares

Vector = NDArray[np.float64]
UNIFORM, TRAIN, OTHERS = "uniform", "train", "*"
GRAMMAR = "uniform, train, numbers like 0.2,0.8, names like crane=0.2,gull=0.8, or a .json, .csv or .parquet file"
_OFF_ONE = 0.02  # shares rounded to two or three digits still count as adding up to one
_TABLES = (".parquet", ".npz")
_FILES = (".json", ".csv", *_TABLES)


@dataclass(frozen=True)
class ByName:
    """Shares by class name, not yet held against the classes of a model."""

    pairs: tuple[tuple[str, float], ...]


Written = str | tuple[float, ...] | ByName  # uniform, train, a number for each class in order, or by name


# ---- reading ----


def read_prior(
    value: Any, class_names: Sequence[str], *, train: ArrayLike | None = None, where: str = "--target-prior"
) -> Vector:
    """The shares (C,) that `value` means for these classes, adding up to one. `train`: the training prior, if known."""
    path = _file(value) if isinstance(value, (str, Path)) else None
    return shares_of(written(value, where=where), class_names, train=train, where=path or where)


def read_target(
    value: Any, class_names: Sequence[str], *, train: ArrayLike | None = None, where: str = "--target-prior"
) -> Vector | None:
    """The same as files store it: None for the uniform prior."""
    uniform = isinstance(value, str) and value.strip() == UNIFORM
    return None if uniform else read_prior(value, class_names, train=train, where=where)


def written(value: Any, *, where: str = "--target-prior", files: bool = True) -> Written:
    """What was written, understood as far as that goes without the classes. Requests may name no files."""
    if isinstance(value, ByName):
        return value
    if isinstance(value, Mapping):
        return _by_name([(str(k), v) for k, v in value.items()], where)
    if isinstance(value, (list, tuple, np.ndarray)):
        return _listed(value, where)
    if not isinstance(value, (str, Path)):
        raise ConfigError(f"must be a list with one share for each class, got {_shown(value)}", where=where)
    text = str(value).strip()
    if text in (UNIFORM, TRAIN) and not isinstance(value, Path):
        return text
    path = _file(value) if files else None
    if path is not None:
        return _from_file(path)
    if text.startswith(("[", "{")):
        return written(_json(text, where), where=where, files=False)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if "=" in text:
        cut = [part.rpartition("=") for part in parts]
        if any(not equals or not name.strip() for name, equals, _ in cut):
            raise _not_a_prior(text, where)
        return _by_name([(name.strip(), share) for name, _, share in cut], where)
    try:
        found = [float(part) for part in parts]
    except ValueError:
        raise _not_a_prior(text, where) from None
    if not found:
        raise _not_a_prior(text, where)
    return _listed(found, where)


def shares_of(
    found: Written, class_names: Sequence[str], *, train: ArrayLike | None = None, where: str | Path = "--target-prior"
) -> Vector:
    """What was written as shares (C,) of these classes."""
    classes = len(class_names)
    if isinstance(found, str):
        if found == UNIFORM:
            return np.full(classes, 1.0 / classes)
        if train is None:
            raise ConfigError("the training prior is not known here", where=where, fix="give the shares themselves")
        return shares(train, name="training prior", classes=classes)
    if isinstance(found, ByName):
        return _summed(_in_order(dict(found.pairs), class_names, where), where)
    if len(found) != classes:
        raise DataError(f"{len(found)} shares for {classes} classes", where=where)
    return _summed(np.asarray(found, np.float64), where)


def _from_file(path: Path) -> Written:
    if path.is_dir() or path.suffix.lower() in _TABLES:
        return _counted(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=path) from None
    except UnicodeDecodeError:
        raise DataError("is not text", where=path, fix=f"give {GRAMMAR}") from None
    if path.suffix.lower() == ".csv":
        return _by_name(_csv_pairs(text, path), path)
    return written(_json(text, path), where=str(path), files=False)


def _json(text: str, where: str | Path) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON ({str(error)[:80]})", where=where) from None
    if not isinstance(found, (list, dict)):
        raise DataError("holds neither a list of shares nor a table by class", where=where)
    return found


def _csv_pairs(text: str, path: Path) -> list[tuple[str, Any]]:
    import csv

    rows = [row for row in csv.reader(text.splitlines()) if row]
    for number, row in enumerate(rows, 1):
        if len(row) != 2:
            raise DataError(f"line {number} has {len(row)} fields, expected a class and its share", where=path)
    if rows and not _is_number(rows[0][1]):  # a header
        rows = rows[1:]
    return [(name.strip(), share) for name, share in rows]


def _counted(path: Path) -> ByName:
    """Rows of each class among the labels of a predictions file."""
    from calibrant.artifacts.predictions import PredictionsFile

    file = PredictionsFile.open(path)
    names = file.source.class_names
    counts = np.zeros(len(names), np.int64)
    for batch in file.batches():
        counts += np.bincount(batch.labels[batch.labels >= 0], minlength=len(names))
    if not counts.any():
        raise DataError("no row has a label, so its class shares are not known", where=path)
    return ByName(tuple(zip(names, map(float, counts), strict=True)))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _listed(values: Any, where: str | Path) -> tuple[float, ...]:
    found = tuple(_share(v, where) for v in (values.tolist() if isinstance(values, np.ndarray) else values))
    _check_sum(found, where)
    return found


def _by_name(pairs: Sequence[tuple[str, Any]], where: str | Path) -> ByName:
    found = ByName(tuple((name, _share(value, where)) for name, value in pairs))
    names = [name for name, _ in found.pairs]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise ConfigError(f'class "{twice}" is given twice', where=where)
    _check_sum([share for _, share in found.pairs], where)
    return found


def _share(value: Any, where: str | Path) -> float:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise DataError(f"shares must be numbers, got {_shown(value)}", where=where)
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise DataError(f"shares must be numbers, got {_shown(value)}", where=where) from None
    if not np.isfinite(number) or number < 0:
        raise DataError(f"shares must be finite and not negative, got {_shown(value)}", where=where)
    return number


def _check_sum(values: Sequence[float], where: str | Path) -> None:
    total = sum(values)
    if total <= 0:
        raise DataError("the shares are all 0", where=where)
    if not np.isfinite(total):
        raise DataError("the shares are too large to add up", where=where)


def _summed(values: Vector, where: str | Path) -> Vector:
    """Shares that add up to one; numbers up to 1 that are not whole are shares already, others are counts."""
    total = float(values.sum())
    claimed = bool((values <= 1).all()) and bool((values != np.floor(values)).any())
    if claimed and abs(total - 1) > _OFF_ONE:
        raise DataError(
            f"the shares add up to {total:.4g}, not to 1", where=where, fix="give shares that add up to 1, or counts"
        )
    scaled: Vector = values / total
    return scaled


def _in_order(found: Mapping[str, float], class_names: Sequence[str], where: str | Path) -> Vector:
    rest = None if OTHERS in class_names else found.get(OTHERS)
    for name in found:
        if name not in class_names and not (name == OTHERS and rest is not None):
            raise DataError(f'no class "{name}"', where=where, fix=did_you_mean(name, class_names))
    missing = [name for name in class_names if name not in found]
    if missing and rest is None:
        raise DataError(
            f'class "{missing[0]}" has no share ({len(missing)} missing)',
            where=where,
            fix="name every class, or give the others with *=SHARE",
        )
    return np.array([found.get(name, rest) for name in class_names], np.float64)


def _not_a_prior(text: str, where: str) -> ConfigError:
    near = did_you_mean(text, (UNIFORM, TRAIN))
    fix = f"{near} Else give {GRAMMAR}" if near.startswith("did you mean") else f"give {GRAMMAR}"
    return ConfigError(f'"{text[:60]}" is not a prior', where=where, fix=fix)


def _file(value: Any) -> Path | None:
    """The file that the text names, if it is one."""
    text = str(value).strip()
    path = Path(text.removeprefix("shares:"))
    if isinstance(value, Path) or text.startswith("shares:") or path.suffix.lower() in _FILES:
        return path
    return path if text and "=" not in text and "," not in text and path.is_dir() else None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
