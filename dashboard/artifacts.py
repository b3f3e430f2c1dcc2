"""Finds and loads what lies below the folder of the dashboard: runs, predictions, calibrators, deployed files.

Nothing outside of that folder is opened: symbolic links that lead out of it are left alone, and a name that came from
a link is looked up among the found ones, never joined to a path. A file that cannot be read becomes a `Trouble` and the
rest goes on. What was read is kept by (path, size, time of change).
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from calibrant.calibration.calibrators import Calibrator
from calibrant.errors import CalibrantError, DataError, FormatError
from calibrant.model_card import ModelCard
from calibrant.onnx_file import OnnxFile
from calibrant.predictions import PredictionsFile, Source

T = TypeVar("T")

MAX_DEPTH = 6
MAX_FILES = 50_000
MAX_JSON_BYTES = 32 << 20
_KEPT = 512
FEATURES_FILE = "features.json"
SWEEP_FILE = "results.parquet"
FEEDBACK_SUFFIX = ".feedback.jsonl"
_RUN_FILES = ("config.json", "metrics.jsonl")
_SUFFIXES = (".parquet", ".json", ".jsonl", ".onnx")
_TEMPORARY = re.compile(r"^\.|\.tmp\.")


@dataclass(frozen=True)
class Stamp:
    """A file as it is now; another size or time means another content."""

    path: Path
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Trouble:
    """Something below the folder that cannot be used: which, why, and what to do."""

    where: str
    what: str
    fix: str = ""


@dataclass(frozen=True)
class PredictionsRef:
    name: str  # "test" of predictions/test.parquet
    path: Path
    rows: int
    source: Source


@dataclass(frozen=True)
class CalibratorRef:
    name: str  # path below the folder
    path: Path
    calibrator: Calibrator


@dataclass(frozen=True)
class Run:
    """A folder with predictions, a training log, or both."""

    name: str
    path: Path
    predictions: tuple[PredictionsRef, ...]
    config: Mapping[str, Any] | None
    metrics: Path | None

    def best(self) -> PredictionsRef | None:
        """The set to judge the run by: test, else validation, else the first."""
        order = {"test": 0, "val": 1}
        return min(self.predictions, key=lambda p: (order.get(p.name, 2), p.name), default=None)

    def find(self, name: str) -> PredictionsRef | None:
        return next((p for p in self.predictions if p.name == name), None)


@dataclass(frozen=True)
class Model:
    name: str
    path: Path
    size: int
    card: ModelCard


@dataclass(frozen=True)
class FeaturesRef:
    """A cache of a frozen backbone's features."""

    name: str
    path: Path
    manifest: Mapping[str, Any]


@dataclass(frozen=True)
class FeedbackRef:
    """A folder with segments of a feedback log."""

    name: str
    path: Path


@dataclass(frozen=True)
class Shelf:
    """Everything below the folder, in order of name."""

    root: Path
    runs: tuple[Run, ...]
    models: tuple[Model, ...]
    calibrators: tuple[CalibratorRef, ...]
    feedback: tuple[FeedbackRef, ...]
    features: tuple[FeaturesRef, ...]
    troubles: tuple[Trouble, ...]

    def run(self, name: str) -> Run | None:
        return next((r for r in self.runs if r.name == name), None)

    def model(self, name: str) -> Model | None:
        return next((m for m in self.models if m.name == name), None)

    def calibrators_for(self, run: Run, predictions: PredictionsRef) -> tuple[CalibratorRef, ...]:
        """Those that were fitted for this run, the nearest first.

        A calibrator belongs to the run when it lies in the run's folder or beside it, or names one of its files by
        hash, and has as many classes; one of another run would be refused or, worse, silently wrong.
        """
        classes = len(predictions.source.class_names)
        near = (run.path, run.path.parent) if run.path != self.root else (run.path,)
        mine = [
            c for c in self.calibrators
            if c.calibrator.classes == classes and (c.path.is_relative_to(run.path) or c.path.parent in near)
        ]  # fmt: skip
        return tuple(sorted(mine, key=lambda c: (not c.path.is_relative_to(run.path), c.name)))


def stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError as error:
        raise DataError(
            f"cannot be read any more ({error.strerror})", where=path.name, fix="choose another, or put it back"
        ) from None
    return Stamp(path, found.st_size, found.st_mtime_ns)


def stamps(path: Path) -> tuple[Stamp, ...]:
    """Of a file, or of each shard of a folder."""
    if not path.is_dir():
        return (stamp(path),)
    return tuple(stamp(p) for p in sorted(path.glob("*.parquet")))


def inside(root: Path, path: Path) -> bool:
    """Whether the file, with every link followed, lies below the folder."""
    try:
        return path.resolve(strict=True).is_relative_to(root.resolve(strict=True))
    except OSError:
        return False


def scan(root: Path) -> Shelf:
    """Looks through the folder. Reads only headers and small files, and those only when they changed."""
    troubles: list[Trouble] = []
    files = list(_walk(root, troubles))
    by_folder: dict[Path, list[Path]] = {}
    for file in files:
        by_folder.setdefault(file.parent, []).append(file)
    reader = _Reader(root, troubles)
    features = _feature_caches(root, by_folder, reader)
    predictions: dict[Path, list[PredictionsRef]] = {}
    for folder, names in by_folder.items():
        if any(n.name == FEATURES_FILE for n in names):
            continue  # its Parquet files hold features, not predictions
        for owner, name, path in _prediction_sets(root, folder, names):
            found = reader.read(path, _read_predictions)
            if found is not None:
                rows, source = found
                predictions.setdefault(owner, []).append(PredictionsRef(name, path, rows, source))
    folders = set(predictions) | {f for f, names in by_folder.items() if any(n.name in _RUN_FILES for n in names)}
    runs = [_run(root, folder, predictions.get(folder, []), reader) for folder in folders]
    models = [
        Model(_name(root, p), p, p.stat().st_size, card)
        for p in files if p.suffix == ".onnx"
        for card in [reader.read(p, _read_card)] if card is not None
    ]  # fmt: skip
    calibrators = [
        CalibratorRef(_name(root, p), p, c)
        for p in files if p.suffix == ".json" and p.name not in _RUN_FILES
        for c in [reader.read(p, _read_calibrator)] if c is not None
    ]  # fmt: skip
    logs = sorted({p.parent for p in files if p.name.endswith(FEEDBACK_SUFFIX)})
    feedback = tuple(FeedbackRef(_name(root, folder), folder) for folder in logs)
    return Shelf(
        root, tuple(sorted(runs, key=lambda r: r.name)), tuple(sorted(models, key=lambda m: m.name)),
        tuple(sorted(calibrators, key=lambda c: c.name)), feedback, features,
        tuple(sorted(troubles, key=lambda t: t.where)),
    )  # fmt: skip


class _Reader:
    """Reads one file after another and notes what could not be read."""

    def __init__(self, root: Path, troubles: list[Trouble]) -> None:
        self.root, self.troubles = root, troubles

    def read(self, path: Path, load: Callable[[Path], T]) -> T | None:
        try:
            return load(path)
        except CalibrantError as error:
            self.troubles.append(Trouble(_name(self.root, path), error.what, error.fix or ""))
        except (OSError, UnicodeError, ValueError) as error:
            what = getattr(error, "strerror", None) or type(error).__name__
            self.troubles.append(Trouble(_name(self.root, path), f"cannot be read ({what})"))
        return None


def _feature_caches(root: Path, by_folder: dict[Path, list[Path]], reader: _Reader) -> tuple[FeaturesRef, ...]:
    found = []
    for folder, names in sorted(by_folder.items()):
        for file in names:
            block = reader.read(file, _read_config) if file.name == FEATURES_FILE else None
            if block is not None and block.get("kind") == "features":
                found.append(FeaturesRef(_name(root, folder), folder, block))
    return tuple(found)


def _walk(root: Path, troubles: list[Trouble]) -> Iterator[Path]:
    """Files below the folder that are really there, at most MAX_DEPTH deep, in order of path."""
    seen = 0
    waiting = [(root, 0)]
    while waiting:
        here, depth = waiting.pop()
        try:
            folders, names = _listing(here)
        except OSError as error:
            troubles.append(Trouble(_name(root, here), f"cannot be listed ({error.strerror})"))
            continue
        for name in names:
            path = here / name
            seen += 1
            if seen > MAX_FILES:
                troubles.append(Trouble(root.name, f"holds more than {MAX_FILES:,} files; the rest is not shown"))
                return
            if path.is_symlink() and not inside(root, path):
                troubles.append(Trouble(_name(root, path), "is a link out of the folder and is not followed"))
                continue
            yield path
        if depth < MAX_DEPTH:
            waiting += [(here / name, depth + 1) for name in reversed(folders)]


def _listing(folder: Path) -> tuple[list[str], list[str]]:
    """Sub-folders and the files of interest. A folder that did not change is not listed again: it may hold a data set.

    A change within the clock's last ticks could go unseen, so what is that fresh is not kept.
    """
    changed = folder.stat().st_mtime_ns
    if time.time_ns() - changed < 2_000_000_000:
        return _list(folder)
    return _listing_at(folder, changed)


@lru_cache(8192)
def _listing_at(folder: Path, changed: int) -> tuple[list[str], list[str]]:
    return _list(folder)


def _list(folder: Path) -> tuple[list[str], list[str]]:
    folders, files = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if _TEMPORARY.search(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "tb":
                    folders.append(entry.name)
            elif entry.name.endswith(_SUFFIXES):
                files.append(entry.name)
    return sorted(folders), sorted(files)


def _prediction_sets(root: Path, folder: Path, files: list[Path]) -> Iterator[tuple[Path, str, Path]]:
    """(run folder, name of the set, file or folder of shards).

    predictions/test.parquet is a set, predictions/test/*.parquet are the shards of one; a Parquet file elsewhere
    belongs to the folder that it lies in.
    """
    tables = [f for f in files if f.suffix == ".parquet" and f.name != SWEEP_FILE]
    if not tables:
        return
    if folder != root and folder.parent != root and folder.parent.name == "predictions":
        yield folder.parent.parent, folder.name, folder
        return
    owner = folder.parent if folder.name == "predictions" and folder != root else folder
    for table in tables:
        yield owner, table.stem, table


def _run(root: Path, folder: Path, predictions: list[PredictionsRef], reader: _Reader) -> Run:
    config, metrics = folder / "config.json", folder / "metrics.jsonl"
    found = reader.read(config, _read_config) if config.is_file() and inside(root, config) else None
    log = metrics if metrics.is_file() and inside(root, metrics) else None
    return Run(_name(root, folder), folder, tuple(sorted(predictions, key=lambda p: p.name)), found, log)


def _name(root: Path, path: Path) -> str:
    relative = path.relative_to(root).as_posix()
    return root.name or "/" if relative == "." else relative


def _read_predictions(path: Path) -> tuple[int, Source]:
    return _predictions(stamps(path))


def _read_card(path: Path) -> ModelCard:
    return card_of(stamp(path))


def _read_config(path: Path) -> Mapping[str, Any]:
    return _config(stamp(path))


def _read_calibrator(path: Path) -> Calibrator | None:
    return _calibrator(stamp(path))


@lru_cache(_KEPT)
def _predictions(files: tuple[Stamp, ...]) -> tuple[int, Source]:
    if not files:
        raise DataError("the folder holds no .parquet file")
    path = files[0].path if len(files) == 1 else files[0].path.parent
    found = PredictionsFile.open(path)
    return found.rows, found.source


@lru_cache(_KEPT)
def card_of(file: Stamp) -> ModelCard:
    return OnnxFile.open(file.path).card()


@lru_cache(_KEPT)
def _config(file: Stamp) -> Mapping[str, Any]:
    block = _json(file)
    if not isinstance(block, dict):
        raise FormatError("is not a run's configuration", where=file.path)
    return block


@lru_cache(_KEPT)
def _calibrator(file: Stamp) -> Calibrator | None:
    """The calibrator in a JSON file; None where the file is about something else."""
    try:
        block = _json(file)
    except FormatError:
        if "calibrator" in file.path.name:
            raise
        return None
    if not isinstance(block, dict) or block.get("kind") != "calibrator":
        return None
    return Calibrator.from_dict(block, where=file.path)


def _json(file: Stamp) -> Any:
    if file.size > MAX_JSON_BYTES:
        raise FormatError(f"is {file.size / 1e6:.0f} MB, too large for this kind of file", where=file.path)
    try:
        return json.loads(file.path.read_bytes())
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise FormatError("is not complete JSON", where=file.path, fix="write it again, or delete it") from None


def read_log(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl. A line that is still being written is left out, as is anything not an object."""
    return list(_log(stamp(path)))


@lru_cache(64)
def _log(file: Stamp) -> tuple[dict[str, Any], ...]:
    rows = []
    with open(file.path, encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                row = json.loads(line)
            except (json.JSONDecodeError, RecursionError):
                continue
            if isinstance(row, dict):
                rows.append(row)
    return tuple(rows)
