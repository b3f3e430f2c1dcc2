"""What can be deployed: a run with its formula, or a deployed file. What a page says is about one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from calibrant.dashboard.folder.artifacts import CalibratorRef, FolderIndex, Model, PredictionsRef, Run
from calibrant.dashboard.numbers import deployed
from calibrant.dashboard.numbers.predictions_through import Scored


@dataclass(frozen=True)
class Subject:
    """`predictions`: held-out ones by which it is judged; None for a file whose run is not here."""

    owner: Run | Model
    predictions: PredictionsRef | None
    through: CalibratorRef | Model | None

    @property
    def name(self) -> str:
        """Of the run or file, as the control of the pages has it."""
        return self.owner.name

    @property
    def formula(self) -> str:
        """In a few words; of a calibrator its file too."""
        if isinstance(self.owner, Model):
            return "deployed file"
        if not isinstance(self.through, CalibratorRef):
            return "network alone"
        return f"{self.through.calibrator.method}, {self.through.path.name}"

    @property
    def key(self) -> str:
        """Tells subjects apart."""
        return f"{self.name}|{'' if self.through is None else self.through.name}"

    @cached_property
    def scored(self) -> Scored | None:
        return None if self.predictions is None else Scored.of(self.predictions, self.through)

    @property
    def facts(self) -> Mapping[str, str | None]:
        """What it was made with: model, loss, seed, date, state."""
        if isinstance(self.owner, Model):
            source = self.owner.card.source
            made = {"model": source.get("model"), "loss": source.get("loss"), "seed": source.get("seed")}
            return {**_words(made), "date": (self.owner.card.created or "")[:10] or None, "state": "deployed file"}
        config = (self.owner.config or {}).get("config")
        config = config if isinstance(config, dict) else {}
        name = None if self.predictions is None else self.predictions.source.model.get("name")
        made = {"model": name, "loss": _inner(config, "loss", "name"), "seed": config.get("seed")}
        return {**_words(made), "date": _date(self), "state": "run" if self.owner.config else "predictions"}


def _inner(table: Mapping[str, Any], key: str, name: str) -> Any:
    part = table.get(key)
    return part.get(name) if isinstance(part, dict) else None


def _words(made: Mapping[str, Any]) -> dict[str, str | None]:
    return {key: None if value is None else str(value) for key, value in made.items()}


def _date(subject: Subject) -> str | None:
    if subject.scored is None:
        return None
    newest = max(file.mtime_ns for file in subject.scored.files)
    return datetime.fromtimestamp(newest / 1e9, UTC).strftime("%Y-%m-%d")


def owners(folder_index: FolderIndex, *, labels: bool = False) -> tuple[Run | Model, ...]:
    """Runs with predictions, trained ones first, then deployed files whose held-out predictions are here.

    `labels`: also runs with nothing but predictions of independent labels.
    """
    found = (run for run in folder_index.runs if run.predictions or (labels and run.labels))
    runs = sorted(found, key=lambda run: (run.config is None, run.name))
    return (*runs, *(model for model in folder_index.models if deployed.held_out(folder_index, model) is not None))


def of_index(folder_index: FolderIndex) -> tuple[Subject, ...]:
    """Each thing once: predictions that were made again of the same weights stand with their run."""
    found: list[Subject] = []
    seen: dict[tuple[str, str, int], bool] = {}
    for run in sorted(folder_index.runs, key=lambda r: (r.config is None, r.name)):
        best = run.best()
        if best is None:
            continue
        weights = best.source.model.get("sha256")
        if isinstance(weights, str):
            same = (weights, best.name, best.rows)
            if same in seen:
                continue
            seen[same] = True
        near = folder_index.calibrators_for(run, best)
        found += [Subject(run, best, calibrator) for calibrator in near] or [Subject(run, best, None)]
    for model in folder_index.models:
        held_out = deployed.held_out(folder_index, model)
        found.append(Subject(model, None if held_out is None else held_out[1], model))
    return tuple(found)
