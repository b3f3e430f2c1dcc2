"""Prepared cases with a known truth: what a verdict must say of each. Also for tests that look at pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.predictions import Predictions, Source
from calibrant.calibration.fitting import fit_file

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]
NAMES = ("auk", "bittern", "crane", "dunlin", "eider", "fulmar", "gull", "heron", "ibis", "jay")
UNIFORM = np.full(10, 0.1)
TAIL = np.geomspace(12, 1, 10) / np.geomspace(12, 1, 10).sum()


@dataclass(frozen=True)
class Prepared:
    """`first_remedy` and `first_cause`: kinds, None where there is none to be said."""

    name: str
    predictions: Path
    calibrator: Path | None
    level: str
    first_cause: str | None
    first_remedy: str | None


def rows(n: int, *, seed: int, prior: Matrix = UNIFORM, classes: int = 10) -> tuple[Matrix, Labels]:
    """Logits z whose softmax is right for rows of this prior, and labels drawn by it."""
    rng = np.random.default_rng(seed)
    y = rng.choice(classes, n, p=prior)
    x = 2.2 * np.eye(classes)[y] + rng.normal(size=(n, classes))
    return 2.2 * x + np.log(prior), y  # Bayes' rule for normal features with means 2.2 e_y


def write(
    folder: Path, name: str, z: Matrix, y: Labels, *, train: Matrix | None = None, names: tuple[str, ...] = NAMES
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    source = Source(names, None if train is None else tuple(train.tolist()))
    path = folder / f"{name}.parquet"
    Predictions(tuple(f"{name}-{i}" for i in range(len(y))), y, z.astype(np.float32), source).write(path)
    return path


def relabelled(z: Matrix, y: Labels, predicted: tuple[int, ...], share: float, seed: int) -> Labels:
    """A share of the rows predicted as these classes belongs to the next class instead."""
    rng = np.random.default_rng([seed, 1])
    moved = np.isin(z.argmax(axis=1), predicted) & (rng.random(len(y)) < share)
    return np.where(moved, (z.argmax(axis=1) + 1) % z.shape[1], y)


def _calibrated(folder: Path) -> Prepared:
    return Prepared("calibrated", write(folder, "test", *rows(4000, seed=1)), None, "trusted", None, None)


def _over_confident(folder: Path) -> Prepared:
    z, y = rows(4000, seed=2)
    path = write(folder, "test", 3 * z, y)
    return Prepared("over-confident", path, None, "not-trusted", "over-confident", "recalibrate")


def _under_confident(folder: Path) -> Prepared:
    z, y = rows(4000, seed=3)
    path = write(folder, "test", 0.45 * z, y)
    return Prepared("under-confident", path, None, "not-trusted", "under-confident", "recalibrate")


def _prior_shift(folder: Path) -> Prepared:
    """Trained and calibrated where birds are rare and common, used where all are alike."""
    steep = np.geomspace(200, 1, 10) / np.geomspace(200, 1, 10).sum()
    val = write(folder, "val", *rows(4000, seed=4, prior=steep), train=steep)
    z, y = rows(4000, seed=5)
    test = write(folder, "test", z + np.log(steep) - np.log(UNIFORM), y, train=steep)
    calibrator = folder / "calibrator.json"
    fit_file(val).save(calibrator)
    return Prepared("prior shift", test, calibrator, "not-trusted", "prior-shift", "adjust")


def _harmful(folder: Path) -> Prepared:
    """Fitted on rows of another camera, where the network was far too sure."""
    z, y = rows(4000, seed=6)
    val = write(folder, "val", 3 * z, y)
    calibrator = folder / "calibrator.json"
    fit_file(val).save(calibrator)
    test = write(folder, "test", *rows(4000, seed=7))
    return Prepared("harmful calibrator", test, calibrator, "not-trusted", "harmful-calibrator", "leave-out")


def _in_sample(folder: Path) -> Prepared:
    z, y = rows(4000, seed=8)
    val = write(folder, "val", 2 * z, y)
    calibrator = folder / "calibrator.json"
    fit_file(val, "vector").save(calibrator)
    return Prepared("in-sample", val, calibrator, "care", "in-sample", "cross-fit")


def _forty_rows(folder: Path) -> Prepared:
    path = write(folder, "test", *rows(40, seed=9))
    return Prepared("forty rows", path, None, "unknown", "too-few-rows", "labels")


def _bad_class(folder: Path) -> Prepared:
    z, y = rows(4000, seed=10)
    path = write(folder, "test", z, relabelled(z, y, (2,), 0.45, 10))
    return Prepared("one bad class", path, None, "care", "class", "recalibrate")


def _bad_group(folder: Path) -> Prepared:
    """The classes that were rare in training, as a group."""
    z, y = rows(6000, seed=11, prior=TAIL)
    path = write(folder, "test", z, relabelled(z, y, (7, 8, 9), 0.35, 11), train=TAIL)
    return Prepared("a bad group", path, None, "care", "group", "recalibrate")


def _broken_ranking(folder: Path) -> Prepared:
    """As right as ever, but how sure it is has nothing to do with it."""
    rng = np.random.default_rng([12, 1])
    z, y = rows(4000, seed=12)
    sure = rng.uniform(0.3, 0.999, len(y))
    p = np.repeat((1 - sure)[:, None] / 9, 10, axis=1)
    p[np.arange(len(y)), z.argmax(axis=1)] = sure
    return Prepared("broken ranking", write(folder, "test", np.log(p), y), None, "not-trusted", "ranking", None)


def _drift(folder: Path) -> Prepared:
    """Labelled rows of a log in which the pictures became blurred: half of what the model goes by is gone."""
    rng = np.random.default_rng([13, 1])
    z, y = rows(4000, seed=13)
    late = np.arange(4000) >= 1500
    blurred = 2.2 * (1.0 * np.eye(10)[y] + 1.3 * rng.normal(size=z.shape))
    path = write(folder, "test", np.where(late[:, None], blurred, z), y)
    return Prepared("drift in the log", path, None, "not-trusted", "over-confident", "recalibrate")


def _foreign(folder: Path) -> Prepared:
    """Pictures of something else, which somebody labelled with the nearest class."""
    z, _ = rows(4000, seed=14)
    y = np.random.default_rng([14, 1]).integers(0, 10, 4000)
    return Prepared("foreign pictures", write(folder, "test", z, y), None, "not-trusted", "ranking", None)


def _surest_tenth(folder: Path) -> Prepared:
    """Right as claimed but for the surest tenth, of which most belong to the next class: no temperature follows."""
    z, y = rows(4000, seed=15)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    sure = (p.max(axis=1) / p.sum(axis=1)).argsort()[-400:]
    moved = np.zeros(4000, bool)
    moved[np.random.default_rng([15, 1]).choice(sure, 320, replace=False)] = True
    path = write(folder, "test", z, np.where(moved, (z.argmax(axis=1) + 1) % 10, y))
    return Prepared("the surest tenth", path, None, "not-trusted", "over-confident", "recalibrate")


def _one_class(folder: Path) -> Prepared:
    z, y = rows(4000, seed=16)
    path = write(folder, "test", z[y == 2], y[y == 2])
    return Prepared("rows of one class", path, None, "care", "prior-shift", "labels")


def _trained_on_a_tail(folder: Path) -> Prepared:
    """Without a calibrator: the whole is within the margin, head and tail are off, and Bayes' rule mends it."""
    z, y = rows(4000, seed=5)
    path = write(folder, "test", z + np.log(TAIL) - np.log(UNIFORM), y, train=TAIL)
    return Prepared("trained on a tail", path, None, "care", "prior-shift", "adjust")


def _shift_and_too_sure(folder: Path) -> Prepared:
    """Trained on a steep tail, used where all classes are alike, and twice too sure: neither remedy alone is enough."""
    steep = np.geomspace(60, 1, 10) / np.geomspace(60, 1, 10).sum()
    z, y = rows(4000, seed=104)
    path = write(folder, "test", 2.2 * (z + np.log(steep) - np.log(UNIFORM)), y, train=steep)
    return Prepared("a shift, and too sure", path, None, "not-trusted", "prior-shift", "adjust")


def _swapped(folder: Path) -> Prepared:
    """Somebody else's labels, in which two classes stand in the other order."""
    z, y = rows(4000, seed=17)
    path = write(folder, "test", z, np.array([0, 1, 2, 7, 4, 5, 6, 3, 8, 9])[y])
    return Prepared("swapped classes", path, None, "not-trusted", "class", "order")


def _from_one(folder: Path) -> Prepared:
    """Labels that were counted from one, the last of them taken for the first."""
    z, y = rows(4000, seed=18)
    return Prepared("off by one", write(folder, "test", z, (y + 1) % 10), None, "not-trusted", "ranking", "order")


CASES: dict[str, Callable[[Path], Prepared]] = {
    "calibrated": _calibrated, "over-confident": _over_confident, "under-confident": _under_confident,
    "prior shift": _prior_shift, "harmful calibrator": _harmful, "in-sample": _in_sample, "forty rows": _forty_rows,
    "one bad class": _bad_class, "a bad group": _bad_group, "broken ranking": _broken_ranking,
    "drift in the log": _drift, "foreign pictures": _foreign, "the surest tenth": _surest_tenth,
    "rows of one class": _one_class, "trained on a tail": _trained_on_a_tail,
    "a shift, and too sure": _shift_and_too_sure,
    "swapped classes": _swapped, "off by one": _from_one,
}  # fmt: skip


def prepare(name: str, folder: Path) -> Prepared:
    """Writes the files of a case into `folder` and says what is right."""
    return CASES[name](folder)
