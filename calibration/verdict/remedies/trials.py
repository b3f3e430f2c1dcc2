"""What can be tried for a model that lies in files: each with the command that does it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.foreign.read import Asked
from calibrant.artifacts.predictions import Source
from calibrant.calibration.calibrators import Calibrator, fit
from calibrant.calibration.cross_fit import as_fitted, cross_fitted, inside, shares_elsewhere
from calibrant.calibration.formula import Formula
from calibrant.calibration.populations import Population, shift_between
from calibrant.calibration.verdict.case import JudgedRows, Matrix, Trial
from calibrant.calibration.verdict.policy import MARGIN
from calibrant.calibration.verdict.verdict import CauseKind, RemedyKind
from calibrant.priors import TRAIN, UNIFORM
from calibrant.shares import shares

OUT = "calibrator-new.json"
_FOLDS = 5
# It follows any shape of the error; the temperature beside it, for few rows, would keep half of such an error.
ALONE: dict[str, dict[str, Any]] = {"histogram": {"mixture": False}}
_FEW_CLASSES = 100  # up to which a map with numbers of its own for each class is tried


@dataclass(frozen=True)
class Call:
    """How predictions were named on a command line."""

    path: Path
    calibrator: Path | None = None
    target_prior: str | None = None
    adjust: float | None = None
    asked: Asked | None = None

    def evaluate(self, *options: str, plain: bool = False) -> str:
        chosen = [] if plain or self.calibrator is None else ["--calibrator", str(self.calibrator)]
        return self._line("evaluate", *chosen, *options)

    def calibrate(self, *options: str) -> str:
        return self._line("calibrate", *options, "--out", OUT)

    def labels(self, margin: float) -> str:
        chosen = [] if self.calibrator is None else ["--calibrator", str(self.calibrator)]
        return self._line("labels", *chosen, *([] if margin == MARGIN else ["--margin", f"{margin:g}"]))

    def prior(self) -> tuple[str, ...]:
        """The options that say for which class shares."""
        adjust = () if self.adjust is None else ("--adjust", f"{self.adjust:g}")
        return (*adjust, *(() if self.target_prior is None else ("--target-prior", self.target_prior)))

    def _line(self, command: str, *options: str) -> str:
        said = {} if self.asked is None else {"--kind": self.asked.kind, "--outcome": self.asked.outcome}
        flags = [word for option, value in said.items() if value is not None for word in (option, value)]
        return shlex.join(["calibrant", command, str(self.path), *options, *flags])


def right_target(source: Source, judged: Population, path: Path) -> str | None:
    """How the class shares of the judged rows are written on a command line; None where no correction can be made."""
    if source.train_prior is None or min(source.train_prior) <= 0:
        return None
    uniform = Population(np.full(len(source.class_names), 1 / len(source.class_names)))
    if not shift_between(uniform, judged).clear:
        return UNIFORM
    if not shift_between(Population(shares(source.train_prior)), judged).clear:
        return TRAIN
    return f"shares:{path}"


def trials(
    call: Call, formula: Formula, source: Source, judged: Population, *, in_sample: bool, weighted: bool
) -> Iterator[Trial]:
    """Everything that may help; which of them are tried is decided by the causes."""
    if in_sample and formula.calibrator is not None:
        yield Trial(
            "cross-fit",
            frozenset({"in-sample"}),
            "Judge each row by a map that has not seen it, or take other rows",
            call.evaluate("--cross-fit", str(_FOLDS), *call.prior()),
            _crossed(formula, call.calibrator),
        )
        return
    if not formula.plain:
        what = "calibrator" if formula.calibrator is not None else "correction"
        yield Trial(
            "leave-out",
            frozenset({"harmful-calibrator"}),
            f"Leave the {what} out",
            call.evaluate(*(call.prior() if call.adjust is None else ()), plain=True),
            lambda rows: rows.plain,
        )
    target = right_target(source, judged, call.path)
    if target is not None:
        yield _adjustment(call, formula, source, target, weighted)
        if not weighted:
            yield _adjusted_temperature(call, source, target)
    for method, against, after in methods(len(source.class_names), no_target=target is None):
        yield Trial(
            "recalibrate",
            against,
            f"Fit a calibrator on rows like these ({method})",
            call.calibrate("--method", method, *_said(method), *call.prior()),
            recalibrated(method, None if call.adjust is None else formula),
            after=after,
        )


def methods(classes: int, *, no_target: bool) -> Iterator[tuple[str, frozenset[CauseKind], frozenset[RemedyKind]]]:
    """Each with what it is against, and after what it is tried: maps that follow any shape of the error ask for rows.

    `no_target`: a shift of the class shares that cannot be corrected is met by a new calibrator.
    """
    whole: set[CauseKind] = {"over-confident", "under-confident"}
    single: set[CauseKind] = {"class", "group"}
    shift: set[CauseKind] = {"prior-shift"} if no_target else set()
    at_once: frozenset[RemedyKind] = frozenset()
    last: frozenset[RemedyKind] = frozenset({"recalibrate", "adjust", "leave-out"})
    yield "temperature", frozenset(whole | shift), at_once
    if classes <= _FEW_CLASSES:
        yield "vector", frozenset(single | shift), at_once
        yield "isotonic", frozenset(whole | single), last
        yield "histogram", frozenset(whole), last


def _said(method: str) -> list[str]:
    """The fit's options as a command line has them."""
    return [word for k, v in ALONE.get(method, {}).items() for word in ("--option", f"{k}={v}".lower())]


def recalibrated(method: str, corrected: Formula | None = None) -> Callable[[JudgedRows], Matrix]:
    """Each row by a map of the others; fitted inside the prior correction of a formula where one is given."""

    def logits(rows: JudgedRows) -> Matrix:
        weights = None if rows.weights is None else rows.weights[rows.labels]
        options = {} if corrected is None else inside(corrected.prior)
        u = cross_fitted(method, rows.plain, rows.labels, weights=weights, **ALONE.get(method, {}), **options)
        shift = None if corrected is None else corrected.shift()
        return u if shift is None else u - shift

    return logits


def _crossed(formula: Formula, where: Path | None) -> Callable[[JudgedRows], Matrix]:
    def logits(rows: JudgedRows) -> Matrix:
        calibrator = formula.calibrator
        assert calibrator is not None  # only a calibrator can have seen rows
        return cross_fitted_as(
            calibrator, formula, rows.plain, rows.labels, where, folds=_FOLDS, features=rows.features
        )

    return logits


def cross_fitted_as(
    calibrator: Calibrator,
    formula: Formula,
    logits: NDArray[Any],
    labels: NDArray[np.int64],
    where: Path | None,
    *,
    folds: int | NDArray[np.intp],
    features: NDArray[Any] | None = None,
) -> Matrix:
    """Each row through a map that was fitted on the other parts, inside the same expression."""
    settings, weights = as_fitted(calibrator, labels, where)
    if calibrator.reads_features:
        settings["features"] = features
    u = cross_fitted(calibrator.method, logits, labels, weights=weights, folds=folds, chosen=calibrator, **settings)
    shift = formula.shift()
    return u if shift is None else u - shift


def _adjustment(call: Call, formula: Formula, source: Source, target: str, weighted: bool) -> Trial:
    """By Bayes' rule to the class shares of these rows; shares counted on them are those of the other folds.

    `evaluate --adjust` counts rows as they are, so weighted rows take the way through `calibrate`.
    """
    options = ("--adjust", "1", "--target-prior", target)
    counted = target.startswith("shares:")

    def corrected(rows: JudgedRows, prior: Any) -> Matrix:
        made = Formula.of(formula.calibrator, source, adjust=1.0, target_prior=prior)
        return made.logits(rows.plain, rows.features)

    def logits(rows: JudgedRows) -> Matrix:
        if weighted:
            shift = Formula.of(None, source, adjust=1.0, target_prior=_wanted(rows, target)).shift()
            u = cross_fitted("temperature", rows.plain, rows.labels)
            return u if shift is None else u - shift
        if not counted:
            return corrected(rows, target)
        out = np.empty(rows.plain.shape, np.float64)
        for chosen, elsewhere in shares_elsewhere(rows.labels, rows.plain.shape[1]):
            out[chosen] = corrected(rows, elsewhere.tolist())[chosen]
        return out

    command = (
        call.calibrate("--adjust", "1", "--target-prior", call.target_prior or target, "--rows-follow", "train")
        if weighted
        else call.evaluate(*options)
    )
    return Trial("adjust", frozenset({"prior-shift"}), "Correct for the class shares of these rows", command, logits)


def _adjusted_temperature(call: Call, source: Source, target: str) -> Trial:
    """Where the confidence is off by more than the class shares explain: a temperature inside the correction."""

    def logits(rows: JudgedRows) -> Matrix:
        if not target.startswith("shares:"):
            return recalibrated("temperature", Formula.of(None, source, adjust=1.0, target_prior=target))(rows)
        out = np.empty(rows.plain.shape, np.float64)
        for chosen, elsewhere in shares_elsewhere(rows.labels, rows.plain.shape[1]):
            made = Formula.of(None, source, adjust=1.0, target_prior=elsewhere.tolist())
            fitted = fit("temperature", rows.plain[~chosen], rows.labels[~chosen], **inside(made.prior))
            shift = made.shift()
            out[chosen] = fitted.logits(rows.plain[chosen]) - (0.0 if shift is None else shift)
        return out

    return Trial(
        "adjust",
        frozenset({"prior-shift"}),
        "Correct for the class shares of these rows and fit a temperature",
        call.calibrate("--adjust", "1", "--target-prior", target),
        logits,
        after=frozenset({"adjust"}),
    )


def _wanted(rows: JudgedRows, target: str) -> Any:
    if not target.startswith("shares:"):
        return target
    counts = np.bincount(rows.labels, minlength=rows.plain.shape[1])
    weights = rows.weights if rows.weights is not None else np.ones(rows.plain.shape[1])
    return (counts * weights / (counts * weights).sum()).tolist()
