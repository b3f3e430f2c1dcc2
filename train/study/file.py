"""A study as it is written down: every table of its TOML file, each key checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from calibrant.calibration.calibrators import METHODS
from calibrant.calibration.calibrators.table import FORMS
from calibrant.config import build, read_toml
from calibrant.errors import ConfigError, did_you_mean
from calibrant.train.data.leaves import LeafSpec
from calibrant.train.heads.scores import METRICS as OF_HEADS
from calibrant.train.study.score import KNOWN

Kind = Literal["train", "heads", "points"]
_METRICS_OF_HEADS = ["accuracy", "balanced_accuracy", "macro_f1", "nll", "ece", "aece"]  # unless the study says others


@dataclass(frozen=True)
class Part:
    """[[data]], [[network]] or [[method]]: variants of the recipe, and settings that lie over it."""

    name: str
    recipe: str = ""
    set: dict[str, Any] = field(default_factory=dict)
    # method: settings taken from what another method's runs of the same seed measured, as "loss.alpha" = "fedlas-ls
    # mean_alpha"
    measured: dict[str, str] = field(default_factory=dict)
    control: str = ""  # method: of which one this is a control, and what it shows
    published: dict[str, float] = field(default_factory=dict)  # method: the figures of the paper, by metric
    leaves: LeafSpec | None = None  # data: drawn where --data does not have it


@dataclass(frozen=True)
class Scale:
    """[scale.NAME] How much of it is run. Milestones and warm-up move along with the epochs.

    images, test_images: a share, or a number of images where more than 1; epochs likewise. features: lies over the
    study's [features].
    """

    images: float = 1.0
    test_images: float = 1.0
    epochs: float = 1.0
    seeds: int | None = None
    networks: tuple[str, ...] = ()  # only these
    methods: tuple[str, ...] = ()
    set: dict[str, Any] = field(default_factory=dict)
    features: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """[[figure]] bars: a metric of every method; epochs: a number that the loss reports, epoch by epoch;
    cost: a metric against multiply-accumulates and measured time; norms: feature norm against confidence, for which
    the runs must keep features (engine.features); smoothing: how strongly FeDLaS smooths, by norm; boundary: regions of
    the plane, in a study of points.
    """

    name: str
    kind: Literal["bars", "epochs", "cost", "norms", "smoothing", "boundary"] = "bars"
    of: str = "ece"


@dataclass(frozen=True)
class StudyFile:
    title: str
    paper: str = ""
    kind: Kind = "train"
    reference: str = "ce"
    metrics: tuple[str, ...] = ("accuracy", "nll", "brier", "ece", "adaptive_ece", "over_ece", "under_ece")
    posthoc: tuple[str, ...] = ("temperature",)  # each method also through these calibrators, fitted on validation rows
    seeds: int = 5
    first_seed: int = 1
    base: dict[str, Any] = field(default_factory=dict)
    features: dict[str, Any] = field(default_factory=dict)  # heads: model, views ... of calibrant features
    data: tuple[Part, ...] = ()
    network: tuple[Part, ...] = ()
    method: tuple[Part, ...] = ()
    scale: dict[str, Scale] = field(default_factory=dict)
    figure: tuple[Figure, ...] = ()
    foreign: tuple[Part, ...] = ()  # images of other things: AUROC of telling them by confidence, where --data has them


def names_of_studies() -> dict[str, str]:
    """Name and title of every study of the package."""
    folder = resources.files("calibrant.train") / "studies"
    found = {}
    for file in folder.iterdir():
        if file.name.endswith(".toml"):
            table = read_toml(Path(str(file)))
            found[file.name.removesuffix(".toml").replace("_", "/", 1)] = str(table.get("title", ""))
    return dict(sorted(found.items()))


def read_study(name: str | Path) -> StudyFile:
    """A file, or a study of the package by its name."""
    path = Path(name)
    if path.suffix != ".toml":
        known = names_of_studies()
        if str(name) not in known:
            raise ConfigError(f'no study "{name}"', where="calibrant study", fix=did_you_mean(str(name), known))
        path = Path(str(resources.files("calibrant.train") / "studies" / f"{str(name).replace('/', '_', 1)}.toml"))
    return _checked(_built(read_toml(path), path), path)


def with_reference(study: StudyFile, method: str, scale: str) -> StudyFile:
    """The study with differences to another of the methods that it has at this scale."""
    names = study.scale.get(scale, Scale()).methods or tuple(part.name for part in study.method)
    if method not in names:
        raise ConfigError(f'no method "{method}"', where="--reference", fix=did_you_mean(method, names))
    return replace(study, reference=method)


def _built(table: Mapping[str, Any], path: Path) -> StudyFile:
    rest = dict(table)
    scales = rest.pop("scale", {})
    if not isinstance(scales, Mapping):
        raise ConfigError("is no table of scales", where=f"{path} scale", fix="write [scale.tiny]")
    made = {name: build(Scale, entry, where=f"{path} scale.{name}") for name, entry in scales.items()}
    if rest.get("kind") == "points":
        rest.setdefault("posthoc", [])
    if rest.get("kind") == "heads":
        rest.setdefault("metrics", _METRICS_OF_HEADS)
    study = build(StudyFile, rest, where=path)
    return StudyFile(**{**{f.name: getattr(study, f.name) for f in fields(study)}, "scale": made})


def _checked(study: StudyFile, path: Path) -> StudyFile:
    for what, parts in (("data", (*study.data, *study.foreign)), ("network", study.network), ("method", study.method)):
        names = [part.name for part in parts]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f'two [[{what}]] are called "{twice}"', where=path)
    methods = [part.name for part in study.method]
    if not methods or not study.data:
        raise ConfigError("needs at least one [[method]] and one [[data]]", where=path)
    if study.reference not in methods:
        raise ConfigError(
            f'no method "{study.reference}"', where=f"{path} reference", fix=did_you_mean(study.reference, methods)
        )
    strange = (*study.network, *study.method, *study.foreign, *(study.data if study.kind == "points" else ()))
    drawn = next((part.name for part in strange if part.leaves is not None), None)
    if drawn is not None:
        raise ConfigError(
            "leaves are drawn for [[data]] of a study of images", where=f"{path} {drawn}", fix="leave it out"
        )
    for key in study.metrics:
        if key not in KNOWN:
            raise ConfigError(f'no metric "{key}"', where=f"{path} metrics", fix=did_you_mean(key, KNOWN))
        if study.kind == "heads" and key not in OF_HEADS:
            raise ConfigError(
                f'a study of heads measures no "{key}"', where=f"{path} metrics", fix=did_you_mean(key, OF_HEADS)
            )
    for name in study.posthoc:
        if name not in METHODS:
            raise ConfigError(f'no calibrator "{name}"', where=f"{path} posthoc", fix=did_you_mean(name, METHODS))
        if name in FORMS and FORMS[name].reads_features:
            raise ConfigError(f'"{name}" reads features, and a study fits on logits', where=f"{path} posthoc")
    if study.kind != "train":
        _only_trainings(study, path)
    if study.seeds < 1:
        raise ConfigError("needs at least one seed", where=f"{path} seeds")
    for part in study.method:
        for key, source in part.measured.items():
            name, _, number = source.partition(" ")
            if name not in methods[: methods.index(part.name)] or not number:
                raise ConfigError(
                    f'"{source}" is not "METHOD NUMBER" of a method that stands before it', where=f"{path} {key}"
                )
    for scale_name, scale in study.scale.items():
        for name in scale.methods:
            if name not in methods:
                raise ConfigError(
                    f'no method "{name}"', where=f"{path} scale.{scale_name}", fix=did_you_mean(name, methods)
                )
    return study


def _only_trainings(study: StudyFile, path: Path) -> None:
    """What heads and points would pass over in silence."""
    if study.foreign:
        raise ConfigError(
            f"a study of {study.kind} reads no foreign images", where=f"{path} foreign", fix="leave it out"
        )
    if study.kind == "points" and study.posthoc:
        raise ConfigError(
            "a study of points fits no calibrator afterwards", where=f"{path} posthoc", fix="leave it out"
        )
    if study.kind == "points" and any(part.measured for part in study.method):
        raise ConfigError("a study of points takes no number from another method", where=f"{path} method")
    for name, scale in study.scale.items():
        if (scale.images, scale.test_images, scale.epochs) != (1.0, 1.0, 1.0):
            raise ConfigError(
                f"a study of {study.kind} takes no share of images or epochs",
                where=f"{path} scale.{name}",
                fix="write what is to differ under set",
            )
