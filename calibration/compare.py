"""Is one model better than another? Differences on the same rows, with paired intervals.

Each metric is a mean over rows of a per-row term: exactly for accuracy, NLL and Brier, to first order for the ECE,
where row i adds sign_b(i) (confidence_i - correct_i) with the sign of its bin's gap held. The difference of the two
models' terms, row by row, has far less spread than each alone, since both find the same rows hard.

Where the models disagree about any row, the ECE's variance is what half a row more, right in one model alone, would add
for each (1 / n^2, Agresti and Min's half as for accuracies). Where they agree about nearly all of them the spread of
their confidences is all that rows show: of 30 rows of 1,000 under-confident classes .81 of 200 intervals held without.

Where fewer than three rows are wrong in either model only accuracies have an interval: Student's of the others, which
turn on what a wrong row costs, held the truth in .61 to .86 of data sets of 30 rows with half a wrong one on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.artifacts.foreign.read import Asked
from calibrant.artifacts.predictions import Predictions
from calibrant.calibration.inputs import Floats, Labels, check_labels, check_probs
from calibrant.calibration.intervals.means import mean_interval, paired_share_interval
from calibrant.calibration.metrics.binned_errors import ece_of, ece_terms
from calibrant.calibration.metrics.rows import read_rows
from calibrant.calibration.softmax import softmax
from calibrant.calibration.subjects import subjects
from calibrant.errors import ConfigError, DataError

Vector = NDArray[np.float64]
FEWEST_WRONG = 3  # rows


@dataclass(frozen=True)
class Difference:
    """Second model minus first. `clear`: the 95 % interval does not hold 0. No interval: it cannot be told."""

    first: float
    second: float
    difference: float
    low: float | None
    high: float | None

    @property
    def clear(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "clear": self.clear}


def compare(first: ArrayLike, second: ArrayLike, labels: ArrayLike, *, bins: int = 15) -> dict[str, Difference]:
    """Accuracy, NLL, Brier and ECE of two models' probabilities (N, C) for the same rows."""
    a, b = check_probs(first), check_probs(second)
    if a.shape != b.shape:
        raise DataError(f"the models' probabilities have shapes {a.shape} and {b.shape}", fix="give the same rows")
    y = check_labels(labels, *a.shape)
    terms = [_terms(p, y, bins) for p in (a, b)]
    out = {}
    for name in ("accuracy", "nll", "brier"):
        one, two = terms[0][name], terms[1][name]
        with np.errstate(invalid="ignore"):  # two infinite NLLs differ by nothing that can be told
            out[name] = _difference(float(one.mean()), float(two.mean()), two - one)
    change = terms[1]["accuracy"] - terms[0]["accuracy"]
    if len(y) >= 2:
        low, high = paired_share_interval(float((change > 0).sum()), float((change < 0).sum()), len(y))
        out["accuracy"] = replace(out["accuracy"], low=low, high=high)
    values = [ece_of(read_rows(p, y).bins(bins)) for p in (a, b)]
    disagree = bool((a.argmax(axis=1) != b.argmax(axis=1)).any())
    unseen = 1.0 / len(y) if disagree else 0.0
    out["ece"] = _difference(values[0], values[1], terms[1]["ece"] - terms[0]["ece"], unseen)
    if ((terms[0]["accuracy"] + terms[1]["accuracy"]) < 2).sum() < FEWEST_WRONG:
        out |= {name: replace(out[name], low=None, high=None) for name in ("nll", "brier", "ece")}
    return out


def compare_files(
    paths: Sequence[str | Path],
    calibrators: Sequence[str | Path] = (),
    *,
    bins: int = 15,
    adjust: float | None = None,
    target_prior: str | None = None,
    asked: Asked | None = None,
) -> dict[str, dict[str, Difference]]:
    """Each predictions file, plain and through each formula, against the first file as it is; names as in evaluate.

    Rows are matched by id, so the files may be in any order, but must hold the same labelled ids.
    """
    found = subjects(paths, calibrators, adjust=adjust, target_prior=target_prior, asked=asked)
    features = any(view.formula.reads_features for subject in found for view in subject.views)
    base = found[0].file.read(features=features).labelled()
    reference = softmax(base.logits)
    out = {}
    for subject in found:
        first = subject is found[0]
        data = base if first else in_order_of(base, subject.file.read(features=features).labelled(), subject.path)
        for view in subject.views[1:] if first else subject.views:
            judged = view.formula.probabilities(data.logits, data.features)
            out[view.name] = compare(reference, judged, base.labels, bins=bins)
    if not out:
        raise ConfigError("there is nothing to compare", where="--compare", fix="give two files, or a calibrator")
    return out


def in_order_of(base: Predictions, other: Predictions, where: str | Path) -> Predictions:
    """The rows of `other` as those of `base`, by their ids."""
    place = {id_: i for i, id_ in enumerate(other.ids)}
    if len(place) != len(other) or place.keys() != set(base.ids):
        raise DataError("does not hold the same labelled ids as the first file", where=where, fix="use one data set")
    ordered = other.rows(np.array([place[id_] for id_ in base.ids], np.intp))
    if not np.array_equal(ordered.labels, base.labels):
        raise DataError(
            "labels some ids otherwise than the first file",
            where=where,
            fix="two models are compared on the same rows; of different rows leave out --compare",
        )
    return ordered


def _terms(p: Floats, y: Labels, bins: int) -> dict[str, Vector]:
    rows = read_rows(p, y)
    q = p.astype(np.float64)
    own = q[np.arange(len(y)), y]
    with np.errstate(divide="ignore"):
        nll = -np.log(own)
    return {
        "accuracy": rows.correct.astype(np.float64),
        "nll": nll,
        "brier": np.einsum("ij,ij->i", q, q) - 2 * own + 1,
        "ece": ece_terms(rows.confidence, rows.correct, bins=bins),
    }


def _difference(first: float, second: float, rows: Vector, unseen: float = 0.0) -> Difference:
    """`unseen`: variance of a row beyond what these show."""
    if not np.isfinite(rows).all() or len(rows) < 2:
        return Difference(first, second, second - first, None, None)
    difference = second - first
    low, high = mean_interval(difference, float(rows.var(ddof=1)) + unseen, len(rows))
    return Difference(first, second, difference, low, high)
