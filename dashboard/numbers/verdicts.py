"""The verdict on predictions through a formula: what `calibrant evaluate` says of them, kept while the files stay."""

from __future__ import annotations

import shlex
import threading
from dataclasses import dataclass
from pathlib import Path

from calibrant.artifacts.predictions import PredictionsFile
from calibrant.calibration.evaluate_files import evaluate_subjects
from calibrant.calibration.formula import Formula
from calibrant.calibration.populations import Population, shift_between
from calibrant.calibration.subjects import Subject, View
from calibrant.calibration.verdict.verdict import Remedy, Verdict
from calibrant.dashboard.folder.artifacts import Model, PredictionsRef, Run
from calibrant.dashboard.numbers import measures
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.shares import shares

_found: dict[Scored, Verdict] = {}
_MOST = 1024
_OPTIONS = ("--method", "--option", "--adjust", "--target-prior")  # of a remedy, that say what is fitted
_judging = threading.Lock()


def known(scored: Scored) -> Verdict | None:
    """The verdict, if it was worked out before."""
    return _found.get(scored)


def verdict(scored: Scored) -> Verdict:
    """Of one subject; takes up to seconds the first time, as remedies are tried."""
    with _judging:
        if scored not in _found:
            if len(_found) >= _MOST:
                _found.clear()
            _found[scored] = _judged(scored)
        return _found[scored]


def _judged(scored: Scored) -> Verdict:
    path = scored.path.path
    file = PredictionsFile.open(path)
    through = scored.through
    calibrator = None if through is None or isinstance(through, Model) else through.path
    views = [View(scored.path.name, Formula(len(file.source.class_names)))]
    if through is not None:
        views.append(View(through.name, scored.formula(), calibrator))
    found = evaluate_subjects([Subject(scored.path.name, path, file, tuple(views))])[-1].verdict
    assert found is not None  # every evaluated model has one
    return found


@dataclass(frozen=True)
class Order:
    """A remedy as a command that can be run here. `writes`: the new calibrator."""

    arguments: tuple[str, ...]
    writes: Path


def order(remedy: Remedy, run: Run, predictions: PredictionsRef) -> Order | None:
    """A remedy as a calibrator to be fitted, its result beside the run's predictions; None where it is none.

    Where the run has validation rows the fit is theirs, so that the rows that judged can judge the result too. They may
    have the class shares of training, and those that judged have others.
    """
    words = [] if remedy.command is None else shlex.split(remedy.command)
    options = [word for key in _OPTIONS if key in words for word in (key, words[words.index(key) + 1])]
    if not ("calibrate" in words[1:2] or "--adjust" in options):
        return None
    number, out = 1, run.path / "calibrator-new.json"
    while out.exists():
        number += 1
        out = run.path / f"calibrator-new-{number}.json"
    rows = run.find("val") or predictions
    if "--adjust" in options and rows is not predictions and _as_trained(rows):
        options += ["--rows-follow", "train"]
    return Order(("calibrate", str(rows.path), *options, "--out", str(out)), out)


def _as_trained(rows: PredictionsRef) -> bool:
    if rows.source.train_prior is None:
        return False
    ours = Population.counted(measures.statistics(Scored.of(rows)).by_true.rows)
    return not shift_between(ours, Population(shares(rows.source.train_prior))).clear
