"""What lies below the folder of the dashboard: runs, predictions, calibrators, deployed files, logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.predictions import Source
from calibrant.calibration.calibrators import Calibrator
from calibrant.dashboard.folder.files import Trouble


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
class TokenPicture:
    """What a token-reducing network kept of one image: the image and a panel for each stage, side by side."""

    path: Path
    id: str
    label: int  # -1: unknown
    predicted: int
    confidence: float
    tokens: tuple[int, ...]  # that carry patches after each stage
    patches: tuple[int, ...]  # that are still there, alone or merged


@dataclass(frozen=True)
class TokenGallery:
    method: str
    merged: bool  # tokens are merged, not dropped
    split: str
    class_names: tuple[str, ...]
    blocks: tuple[int, ...]
    grid: tuple[int, int]
    pictures: tuple[TokenPicture, ...]


@dataclass(frozen=True)
class Run:
    """A folder with predictions, a training log, or both."""

    name: str
    path: Path
    predictions: tuple[PredictionsRef, ...]
    config: Mapping[str, Any] | None
    metrics: Path | None
    tokens: TokenGallery | None = None
    labels: tuple[PredictionsRef, ...] = ()  # predictions of independent labels, which do not exclude one another

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
class StudyRef:
    """The joined table of a study."""

    name: str  # of its folder
    path: Path
    block: Mapping[str, Any]


@dataclass(frozen=True)
class FolderIndex:
    """Everything below the folder, in order of name."""

    root: Path
    runs: tuple[Run, ...]
    models: tuple[Model, ...]
    calibrators: tuple[CalibratorRef, ...]
    feedback: tuple[FeedbackRef, ...]
    features: tuple[FeaturesRef, ...]
    troubles: tuple[Trouble, ...]
    studies: tuple[StudyRef, ...] = ()

    def run(self, name: str) -> Run | None:
        return next((r for r in self.runs if r.name == name), None)

    def model(self, name: str) -> Model | None:
        return next((m for m in self.models if m.name == name), None)

    def calibrators_for(self, run: Run, predictions: PredictionsRef) -> tuple[CalibratorRef, ...]:
        """Those that were fitted for this run, the nearest first.

        A calibrator belongs to the run when it lies in the run's folder, or beside it and does not name other weights
        by hash, and has as many classes and their kind of outcome; one of another run would be refused or, worse,
        silently wrong.
        """
        source, classes = predictions.source, len(predictions.source.class_names)
        near = (run.path, run.path.parent) if run.path != self.root else (run.path,)
        mine = [
            c
            for c in self.calibrators
            if c.calibrator.classes == classes
            and c.calibrator.fitted_on.get("outcome", "exclusive") == source.outcome
            and (c.path.is_relative_to(run.path) or (c.path.parent in near and not _of_others(c, source)))
        ]
        return tuple(sorted(mine, key=lambda c: (not c.path.is_relative_to(run.path), c.name)))


def _of_others(ref: CalibratorRef, source: Source) -> bool:
    """Whether it says that it was fitted on what other weights gave."""
    model = ref.calibrator.fitted_on.get("model")
    fitted = model.get("sha256") if isinstance(model, Mapping) else None
    mine = source.model.get("sha256")
    return fitted is not None and mine is not None and fitted != mine
