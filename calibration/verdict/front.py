"""One call on any predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.cross_fit import shares_elsewhere
from calibrant.calibration.evaluation import evaluate, under_prior
from calibrant.calibration.inputs import check_labels, check_probs
from calibrant.calibration.populations import Population
from calibrant.calibration.softmax import floored_logits
from calibrant.calibration.statistics.accumulate import statistics_of_probabilities
from calibrant.calibration.verdict.case import Case, JudgedRows, Matrix, Trial
from calibrant.calibration.verdict.judge import judge
from calibrant.calibration.verdict.policy import margin_of
from calibrant.calibration.verdict.remedies.trials import ALONE, methods, recalibrated
from calibrant.calibration.verdict.verdict import Verdict
from calibrant.errors import DataError


def verdict(
    probs: ArrayLike,
    labels: ArrayLike,
    *,
    before: ArrayLike | None = None,
    policy: str | None = None,
    margin: float | None = None,
    bins: int = 15,
    class_names: Sequence[str] | None = None,
    groups: Mapping[str, Sequence[int]] | None = None,
    target_prior: ArrayLike | str | None = None,
    fitted_on: ArrayLike | None = None,
    in_sample: bool = False,
) -> Verdict:
    """Can the probabilities (N, C) of these labels be trusted, why not, and what helps.

    `before`: the same rows without their calibrator, by which one that harms is found. `fitted_on`: class counts of the
    rows that the calibrator was fitted on. `policy`: low, standard or high stakes; or a `margin` as a number. `groups`:
    classes by name of a group. `target_prior`: "uniform" or class shares that the rows are weighted to. `in_sample`:
    the calibrator was fitted on these very rows.
    """
    let_pass = margin_of(policy, margin)
    p = check_probs(probs)
    y = check_labels(labels, *p.shape)
    plain = p if before is None else check_probs(before)
    if plain.shape != p.shape:
        raise DataError(f"before has shape {plain.shape}, the probabilities {p.shape}", fix="give the same rows")
    statistics = statistics_of_probabilities(p, y)
    evaluation = evaluate(statistics, bins=bins, class_names=class_names, groups=groups, target_prior=target_prior)
    found = Population.counted(statistics.by_true.rows)
    if evaluation.target_prior is not None:
        statistics, wanted = under_prior(statistics, None, target_prior or "uniform")
        found = Population(np.array(wanted))
    names = tuple(class_names) if class_names is not None else tuple(map(str, range(p.shape[1])))
    z = floored_logits(plain)
    rows = JudgedRows(z, z if before is None else floored_logits(p), y, len(y), statistics.class_weights)
    case = Case(
        evaluation,
        statistics,
        names,
        groups or {},
        in_sample=in_sample,
        meant=None if fitted_on is None else Population.counted(fitted_on),
        found=found,
        applied=None if before is None and fitted_on is None else "calibrator",
        rows=lambda: rows,
        labels_call=f"calibrant.calibration.labels_needed(probs, error={2 * let_pass:g}, beyond={let_pass:g})",
        trials=() if in_sample else tuple(_trials(fitted_on, given=before is not None, classes=p.shape[1])),
    )
    return judge(case, margin=let_pass)


def _trials(fitted_on: ArrayLike | None, *, given: bool, classes: int) -> Iterator[Trial]:
    if given:
        yield Trial(
            "leave-out",
            frozenset({"harmful-calibrator"}),
            "Leave the calibrator out",
            "probs = before",
            lambda rows: rows.plain,
        )
    if fitted_on is not None:
        yield Trial(
            "adjust",
            frozenset({"prior-shift"}),
            "Correct for the class shares of these rows",
            "probs * np.bincount(labels) / fitted_on, divided by its sum in each row",
            partial(_adjusted, fitted_on=np.asarray(fitted_on, np.float64)),
        )
    source = "before" if given else "probs"
    for method, kinds, after in methods(classes, no_target=fitted_on is None):
        options = "".join(f", {name}={value}" for name, value in ALONE.get(method, {}).items())
        yield Trial(
            "recalibrate",
            kinds,
            f"Fit a calibrator on rows like these ({method})",
            f'calibrant.calibration.fit("{method}", np.log({source}), labels{options})',
            recalibrated(method),
            after=after,
        )


def _adjusted(rows: JudgedRows, fitted_on: NDArray[np.float64]) -> Matrix:
    """Bayes' rule to the shares of these rows, each row by those of the others."""
    out = np.empty(rows.judged.shape, np.float64)
    for chosen, elsewhere in shares_elsewhere(rows.labels, len(fitted_on)):
        out[chosen] = rows.judged[chosen] + np.log(elsewhere / np.maximum(fitted_on / fitted_on.sum(), 1e-12))
    return out
