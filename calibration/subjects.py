"""What `evaluate` and `compare` look at: predictions files under names that tell them apart, each with its formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrant.artifacts.feedback_logits import refuse_cut
from calibrant.artifacts.foreign.read import Asked
from calibrant.artifacts.predictions import PredictionsFile
from calibrant.artifacts.predictions.file import shards_of
from calibrant.calibration.formula import Formula, read_formula
from calibrant.errors import DataError

CALIBRATOR = "calibrator.json"  # in a run


@dataclass(frozen=True)
class View:
    """One predictions file through one formula. `calibrator`: the file that the formula came from."""

    name: str
    formula: Formula
    calibrator: Path | None = None


@dataclass(frozen=True)
class Subject:
    name: str
    path: Path
    file: PredictionsFile
    views: tuple[View, ...]  # the first leaves the logits as they are


def subjects(
    paths: Sequence[str | Path],
    calibrators: Sequence[str | Path] = (),
    *,
    adjust: float | None = None,
    target_prior: str | None = None,
    asked: Asked | None = None,
) -> list[Subject]:
    """Each file as it is, then through each calibrator, or through the correction alone where there is none.

    A run folder stands for its test predictions (else validation), and brings its own calibrator where none is given.
    """
    found, own = [], []
    for given in map(Path, paths):
        chosen_file, calibrator = of_run(given)
        found.append(chosen_file)
        own.append([calibrator] if calibrator is not None and not calibrators else [Path(c) for c in calibrators])
    names = names_apart(found)
    out = []
    for path, name, chosen in zip(found, names, own, strict=True):
        file = PredictionsFile.open(path, asked=asked)
        if adjust is not None or chosen:
            refuse_cut(file.source.model, path, "another map or prior")
        if adjust is not None and not chosen:
            views = [View("", Formula.of(None, file.source, adjust=adjust, target_prior=target_prior, where=str(path)))]
            views = [View(f"{name}, {views[0].formula.describe()}", views[0].formula)]
        else:
            views = [
                View(
                    f"{name}, {label}" + ("" if adjust is None else f", adjust {adjust:g}"),
                    read_formula(c, file.source, adjust=adjust, target_prior=target_prior),
                    c,
                )
                for c, label in zip(chosen, names_apart(chosen), strict=True)
            ]
        out.append(Subject(name, path, file, (View(name, Formula(len(file.source.class_names))), *views)))
    return out


def of_run(path: Path) -> tuple[Path, Path | None]:
    """The predictions that stand for a run folder, and its calibrator."""
    if not _is_run(path):
        return path, None
    inside = path / "predictions"
    files = {f.stem: f for f in sorted(inside.glob("*.parquet"))}
    if not files:
        raise DataError("the run has no predictions", where=inside, fix="make them with calibrant predict")
    chosen = files.get("test") or files.get("val") or next(iter(files.values()))
    calibrator = path / CALIBRATOR
    return chosen, calibrator if calibrator.is_file() else None


def calibrator_beside(predictions: Path) -> Path:
    """Where a calibrator is kept that is fitted without a word on it: in the run, where `of_run` finds it."""
    return predictions / CALIBRATOR if _is_run(predictions) else Path(CALIBRATOR)


def _is_run(path: Path) -> bool:
    return path.is_dir() and not shards_of(path) and (path / "predictions").is_dir()


def names_apart(paths: Sequence[Path]) -> list[str]:
    """The stem of each path, with so many folders before it that all are told apart; `predictions` says nothing."""
    parts = [[p for p in path.resolve().with_suffix("").parts if p != "predictions"] for path in paths]
    deepest = max((len(p) for p in parts), default=1)
    names = [p[-1] for p in parts]
    for depth in range(2, deepest + 1):
        same = {name for name in names if names.count(name) > 1}
        if not same:
            break
        names = ["/".join(p[-depth:]) if name in same else name for p, name in zip(parts, names, strict=True)]
    return [f"{name} ({i})" if names.count(name) > 1 else name for i, name in enumerate(names, 1)]


def file_names(paths: Sequence[Path]) -> list[str]:
    """The name of each file; where two have one name, what tells them apart."""
    names = [path.name for path in paths]
    return names if len(set(names)) == len(names) else names_apart(paths)
