"""Looks through the folder and lists what it finds in an index.

A file that cannot be read becomes a `Trouble` and the rest goes on. A name that came from a link is looked up among
the found ones, never joined to a path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from calibrant.artifacts.feedback_records import PARQUET, SUFFIX
from calibrant.artifacts.foreign.roles import NoScores
from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.predictions import Source
from calibrant.calibration.calibrators import Calibrator
from calibrant.dashboard.folder.artifacts import (
    CalibratorRef,
    FeaturesRef,
    FeedbackRef,
    FolderIndex,
    Model,
    PredictionsRef,
    Run,
    StudyRef,
    TokenGallery,
)
from calibrant.dashboard.folder.contents import calibrator_of, card_of, header_of, object_of, tokens_of
from calibrant.dashboard.folder.files import TABLES, Trouble, inside, name_below, stamp, stamps, walk
from calibrant.errors import CalibrantError

T = TypeVar("T")

TOKENS_FILE = "tokens/tokens.json"
FEATURES_FILE = "features.json"
SWEEP_FILE = "results.parquet"
STUDY_FILE = "study.json"
FEEDBACK_SUFFIXES = (SUFFIX, PARQUET)
_RUN_FILES = ("config.json", "metrics.jsonl")
_NO_TABLES = (".stats.npz", "metrics.jsonl", SUFFIX)


def scan(root: Path) -> FolderIndex:
    """Looks through the folder. Reads only headers and small files, and those only when they changed."""
    troubles: list[Trouble] = []
    files = list(walk(root, troubles))
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
        Model(name_below(root, p), p, p.stat().st_size, card)
        for p in files
        if p.suffix == ".onnx"
        for card in [reader.read(p, _read_card)]
        if card is not None
    ]
    calibrators = [
        CalibratorRef(name_below(root, p), p, c)
        for p in files
        if p.suffix == ".json" and p.name not in _RUN_FILES
        for c in [reader.read(p, _read_calibrator)]
        if c is not None
    ]
    studies = tuple(
        StudyRef(name_below(root, p.parent), p, block)
        for p in sorted(files)
        if p.name == STUDY_FILE
        for block in [reader.read(p, _read_config)]
        if block is not None and block.get("kind") == "study"
    )
    logs = sorted({p.parent for p in files if p.name.endswith(FEEDBACK_SUFFIXES)})
    feedback = tuple(FeedbackRef(name_below(root, folder), folder) for folder in logs)
    return FolderIndex(
        root,
        tuple(sorted(runs, key=lambda r: r.name)),
        tuple(sorted(models, key=lambda m: m.name)),
        tuple(sorted(calibrators, key=lambda c: c.name)),
        feedback,
        features,
        tuple(sorted(troubles, key=lambda t: t.where)),
        studies,
    )


class _Reader:
    """Reads one file after another and notes what could not be read."""

    def __init__(self, root: Path, troubles: list[Trouble]) -> None:
        self.root, self.troubles = root, troubles

    def read(self, path: Path, load: Callable[[Path], T]) -> T | None:
        try:
            return load(path)
        except CalibrantError as error:
            if isinstance(error, NoScores) and path.suffix in TABLES:
                return None  # a table about something else
            self.troubles.append(Trouble(name_below(self.root, path), error.what, error.fix or ""))
        except (OSError, UnicodeError, ValueError) as error:
            what = getattr(error, "strerror", None) or type(error).__name__
            self.troubles.append(Trouble(name_below(self.root, path), f"cannot be read ({what})"))
        return None


def _feature_caches(root: Path, by_folder: dict[Path, list[Path]], reader: _Reader) -> tuple[FeaturesRef, ...]:
    found = []
    for folder, names in sorted(by_folder.items()):
        for file in names:
            block = reader.read(file, _read_config) if file.name == FEATURES_FILE else None
            if block is not None and block.get("kind") == "features":
                found.append(FeaturesRef(name_below(root, folder), folder, block))
    return tuple(found)


def _prediction_sets(root: Path, folder: Path, files: list[Path]) -> Iterator[tuple[Path, str, Path]]:
    """(run folder, name of the set, file or folder of shards).

    predictions/test.parquet is a set, predictions/test/*.parquet are the shards of one; a Parquet file elsewhere
    belongs to the folder that it lies in.
    """
    owner = folder.parent if folder.name == "predictions" and folder != root else folder
    for table in files:
        if table.suffix in TABLES and not table.name.endswith(_NO_TABLES):
            yield owner, table.name, table
    tables = [f for f in files if f.suffix == ".parquet" and f.name != SWEEP_FILE and not f.name.endswith(PARQUET)]
    if not tables:
        return
    if folder != root and folder.parent != root and folder.parent.name == "predictions":
        yield folder.parent.parent, folder.name, folder
        return
    for table in tables:
        yield owner, table.stem, table


def _run(root: Path, folder: Path, predictions: list[PredictionsRef], reader: _Reader) -> Run:
    config, metrics = folder / "config.json", folder / "metrics.jsonl"
    found = reader.read(config, _read_config) if config.is_file() and inside(root, config) else None
    log = metrics if metrics.is_file() and inside(root, metrics) else None
    gallery = folder / TOKENS_FILE
    tokens = reader.read(gallery, _read_tokens) if gallery.is_file() and inside(root, gallery) else None
    ordered = sorted(predictions, key=lambda p: p.name)
    classes, labels = (tuple(p for p in ordered if p.source.independent is sort) for sort in (False, True))
    return Run(name_below(root, folder), folder, classes, found, log, tokens, labels)


def _read_predictions(path: Path) -> tuple[int, Source]:
    return header_of(stamps(path))


def _read_card(path: Path) -> ModelCard:
    return card_of(stamp(path))


def _read_config(path: Path) -> Mapping[str, Any]:
    return object_of(stamp(path))


def _read_tokens(path: Path) -> TokenGallery:
    return tokens_of(stamp(path))


def _read_calibrator(path: Path) -> Calibrator | None:
    return calibrator_of(stamp(path))
