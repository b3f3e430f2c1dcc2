"""From a study and a scale to the jobs: which configurations there are, and which wait for what others measured."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from calibrant.errors import ConfigError, did_you_mean
from calibrant.train.config import DataConfig, TrainConfig, train_config
from calibrant.train.data.sources import read_data
from calibrant.train.defaults import SCRATCH_EPOCHS
from calibrant.train.jobs.job import read_result
from calibrant.train.jobs.training import TrainJob, train_key
from calibrant.train.recipe import laid_over, moved_schedule, recipe_table
from calibrant.train.study.drawn import drawn_places
from calibrant.train.study.file import Part, Scale, StudyFile
from calibrant.train.study.score import Score, auroc_key, score

# Without a recipe our own defaults hold, but for the head on frozen features that a fine-tuning falls back on: it would
# stand in the place of the method that is compared.
OWN = {"engine": {"frozen_head": "off"}}


@dataclass(frozen=True)
class Cell:
    """One run of the study, by name."""

    data: str
    network: str
    method: str
    seed: int


@dataclass(frozen=True)
class StudyPlan:
    study: StudyFile
    scale: Scale
    scale_name: str
    out: Path
    places: Mapping[str, Path]  # of each data set that is there
    weights: Path | None = None
    seeds: tuple[int, ...] = ()

    @property
    def networks(self) -> tuple[Part, ...]:
        given = self.study.network or (Part("default"),)
        return tuple(n for n in given if not self.scale.networks or n.name in self.scale.networks)

    @property
    def methods(self) -> tuple[Part, ...]:
        return tuple(m for m in self.study.method if not self.scale.methods or m.name in self.scale.methods)

    @property
    def data(self) -> tuple[Part, ...]:
        return tuple(d for d in self.study.data if d.name in self.places or self.study.kind == "points")

    @property
    def foreign(self) -> dict[str, Path]:
        """Where the foreign images lie that are there."""
        return {f.name: self.places[f.name] for f in self.study.foreign if f.name in self.places}

    @property
    def metrics(self) -> tuple[str, ...]:
        return (*self.study.metrics, *(auroc_key(name) for name in self.foreign))

    def cells(self) -> list[Cell]:
        """Seeds outermost, so that a study that was stopped is still balanced."""
        return [
            Cell(d.name, n.name, m.name, seed)
            for seed in self.seeds
            for d in self.data
            for n in self.networks
            for m in self.methods
        ]


def plan_study(
    study: StudyFile,
    *,
    scale: str,
    out: Path,
    places: Mapping[str, Path],
    weights: Path | None = None,
    seeds: int | None = None,
) -> StudyPlan:
    """The study at one of its scales; `full` is there without being written down."""
    scales = {"full": Scale(), **study.scale}
    if scale not in scales:
        raise ConfigError(f'no scale "{scale}"', where="--scale", fix=did_you_mean(scale, scales))
    chosen = scales[scale]
    if study.kind == "points" and places:
        raise ConfigError("this study draws its points", where="--data", fix="leave it out")
    names = [part.name for part in (*study.data, *study.foreign)]
    strange = next((name for name in places if name not in names), None)
    if strange is not None:
        raise ConfigError(f'no data "{strange}"', where="--data", fix=did_you_mean(strange, names))
    count = seeds or chosen.seeds or study.seeds
    numbers = tuple(range(study.first_seed, study.first_seed + count))
    return StudyPlan(study, chosen, scale, out, {**drawn_places(out, study.data), **places}, weights, numbers)


class Source(Protocol):
    """What makes the jobs of a study, and reads what they came to."""

    def job(self, cell: Cell) -> Any: ...

    def score(self, job: Any, result: Mapping[str, Any], view: str) -> Score: ...


class Trainings:
    """The jobs of a study of trainings."""

    def __init__(self, plan: StudyPlan) -> None:
        self.plan = plan
        self._data: dict[str, tuple[str, int, int, int]] = {}

    def job(self, cell: Cell) -> TrainJob | None:
        """The job of a cell; None while another method's run that it takes a number from is missing."""
        plan = self.plan
        d, n = part_of(plan.data, cell.data), part_of(plan.networks, cell.network)
        m = part_of(plan.methods, cell.method)
        taken = taken_from_others(self, plan, cell, m)
        if taken is None:
            return None
        config = self._config(d, n, m, cell.seed, taken)
        digest = self._sizes(d.name, config.data)[0]
        key = train_key(config, digest)
        return TrainJob(config, f"trainings/{key[:16]}", key, lean=True)

    def score(self, job: TrainJob, result: Mapping[str, Any], view: str) -> Score:
        return score(self.plan.out, job, view, self.plan.study.metrics, self.plan.foreign)

    def _config(self, d: Part, n: Part, m: Part, seed: int, taken: Mapping[str, float]) -> TrainConfig:
        plan, scale = self.plan, self.plan.scale
        recipe = "/".join(part for part in (d.recipe, n.recipe, m.recipe) if part)
        table: dict[str, Any] = recipe_table(recipe) if d.recipe else dict(OWN)
        for over in (plan.study.base, d.set, n.set, m.set, scale.set):
            table = laid_over(table, over)
        schedule = dict(table.get("schedule", {}))
        before = schedule.get("epochs") or SCRATCH_EPOCHS
        epochs = round(scale.epochs) if scale.epochs > 1 else max(1, round(scale.epochs * before))
        table["schedule"] = {**schedule, **moved_schedule(schedule, epochs), "epochs": epochs}
        if plan.weights is not None:
            table = laid_over(table, {"model": {"weights": str(plan.weights), "pretrained": False}})
        table["data"] = {
            **table.get("data", {}),
            "path": str(plan.places[d.name]),
            "layout": "auto",
            "cache_dir": str(plan.out / "pixels"),
        }
        settings = [f"{key}={json.dumps(value)}" for key, value in taken.items()]
        config = train_config(table, [*settings, f"seed={seed}"], where=f"{plan.study.title}: {m.name}")
        data = config.data
        _, train, val, test = self._sizes(d.name, data)
        share = scale.images if scale.images <= 1 else min(1.0, scale.images / train)
        test_share = scale.test_images if scale.test_images <= 1 else min(1.0, scale.test_images / max(1, test))
        return replace(
            config,
            data=replace(data, share=round(share, 6), test_share=round(test_share, 6)),
            engine=replace(config.engine, tensorboard=False, device="cpu"),
        )

    def _sizes(self, name: str, data: DataConfig) -> tuple[str, int, int, int]:
        """Hash of what lies there, and how many images each split has, before shares are taken."""
        if name not in self._data:
            splits = read_data(replace(data, share=1.0, test_share=1.0, imbalance=None))
            digest = hashlib.sha256()
            counts = []
            for images in (splits.train, splits.val, splits.test):
                counts.append(0 if images is None else len(images))
                if images is not None:
                    digest.update(json.dumps([list(images.ids), images.labels.tolist()]).encode())
            self._data[name] = (digest.hexdigest()[:32], *counts)  # type: ignore[assignment]
        return self._data[name]


def taken_from_others(source: Source, plan: StudyPlan, cell: Cell, method: Part) -> dict[str, float] | None:
    """Settings of the method that other methods' runs of the same seed measured; None while one of those is missing."""
    taken: dict[str, float] = {}
    for key, wanted in method.measured.items():
        name, _, number = wanted.partition(" ")
        other = source.job(replace(cell, method=name))
        result = None if other is None else read_result(plan.out, other.key)
        if result is None:
            return None
        told = result.get("measured", {})
        if number not in told:
            raise ConfigError(f'{name} reports no "{number}"', where=key, fix=did_you_mean(number, told))
        taken[key] = float(f"{told[number]:.6g}")
    return taken


def part_of(parts: Sequence[Part], name: str) -> Part:
    return next(part for part in parts if part.name == name)
