"""Is one model of independent labels better than another? Differences of the label means, paired row by row.

The mean over labels of a mean over rows is a mean over rows of d_i = (n / L) sum_k w_i d_ik / W_k, k over the labels
known of row i and W_k the weight of all rows that know label k. The row is what is drawn: labels of one picture err
together, so that nothing is gained from their number. The ECE's terms hold the sign of each bin's gap, as in
`calibration.compare`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.foreign.read import Asked
from calibrant.artifacts.predictions import Predictions
from calibrant.calibration.calibrators.base import Calibrator
from calibrant.calibration.compare import FEWEST_WRONG, Difference
from calibrant.calibration.independent.files import labels_calibrator, read_labels_file
from calibrant.calibration.intervals.means import mean_interval
from calibrant.calibration.softmax import sigmoid
from calibrant.calibration.statistics.bins import equal_width, equal_width_index
from calibrant.calibration.subjects import file_names, names_apart
from calibrant.errors import ConfigError, DataError

Matrix = NDArray[np.float64]


def compare_labels(
    first: NDArray[np.floating[Any]],
    second: NDArray[np.floating[Any]],
    present: NDArray[np.int8],
    *,
    bins: int = 15,
    weights: NDArray[np.float64] | None = None,
) -> dict[str, Difference]:
    """Accuracy (share of labels on the right side of one half), NLL, Brier and ECE of two models' logits (N, L).

    present: 1, 0, and -1 where it is not known.
    """
    if first.shape != second.shape or first.shape != present.shape:
        raise DataError(f"shapes {first.shape}, {second.shape}, {present.shape} differ", fix="give the same rows")
    known = present >= 0
    own = known * (np.ones(len(present)) if weights is None else weights)[:, None]
    total = own.sum(0)
    measured = total > 0
    if not measured.any():
        raise DataError("no row has a known label")
    share = np.where(known, own, 0.0) / np.where(measured, total, 1.0) / int(measured.sum())
    y = present == 1
    terms = [_terms(sigmoid(z), y, known, weights, bins) for z in (first, second)]
    n = len(present)
    wrong = ((terms[0]["accuracy"] < 1) | (terms[1]["accuracy"] < 1)) & known
    few = int(wrong.any(1).sum()) < FEWEST_WRONG
    out = {}
    for name in terms[0]:
        one, two = ((share * t[name]).sum(1) * n for t in terms)
        value, other = float(one.mean()), float(two.mean())
        moved = two - one
        low, high = (None, None) if few or n < 2 else mean_interval(other - value, float(moved.var(ddof=1)), n)
        out[name] = Difference(value, other, other - value, low, high)
    return out


def _terms(
    p: Matrix, y: NDArray[np.bool_], known: NDArray[np.bool_], weights: NDArray[np.float64] | None, bins: int
) -> dict[str, Matrix]:
    gaps = np.zeros(p.shape)
    for k in range(p.shape[1]):
        rows = known[:, k]
        if rows.any():
            table = equal_width(p[rows, k], y[rows, k], bins, None if weights is None else weights[rows])
            side = np.sign(table.gap)[equal_width_index(p[rows, k], bins)]
            gaps[rows, k] = side * (p[rows, k] - y[rows, k])
    return {
        "accuracy": ((p >= 0.5) == y).astype(np.float64),
        "nll": -np.log(np.maximum(np.where(y, p, 1 - p), 1e-300)),
        "brier": (p - y) ** 2,
        "ece": gaps,
    }


def compare_label_files(
    paths: Sequence[Path], calibrators: Sequence[Path] = (), *, bins: int = 15, asked: Asked | None = None
) -> dict[str, dict[str, Difference]]:
    """Each file, plain and through each calibrator, against the first file as it is; rows are matched by id."""
    base: Predictions | None = None
    out = {}
    maps = names_apart(calibrators)
    for path, file_name in zip(paths, file_names(paths), strict=True):
        data = read_labels_file(path, asked)[1]
        views: list[tuple[str, Calibrator | None]] = [
            (f"{file_name}, {label}", labels_calibrator(c, data)) for c, label in zip(calibrators, maps, strict=True)
        ]
        if base is None:
            base = data
        else:
            data = same_rows(base, data, path)
            views = [(file_name, None), *views]
        assert base.present is not None  # of independent labels
        for name, calibrator in views:
            z = data.logits if calibrator is None else calibrator.logits(data.logits)
            out[name] = compare_labels(base.logits, z, base.present, bins=bins, weights=base.weights)
    if not out:
        raise ConfigError("there is nothing to compare", where="--compare", fix="give two files, or a calibrator")
    return out


def same_rows(base: Predictions, other: Predictions, where: str | Path) -> Predictions:
    """The rows of `other` as those of `base`, by their ids, with the same labels."""
    if other.class_names != base.class_names:
        raise DataError("has other labels than the first file", where=where, fix="give models of one task")
    place = {id_: i for i, id_ in enumerate(other.ids)}
    if len(place) != len(other) or place.keys() != set(base.ids):
        raise DataError("does not hold the same labelled ids as the first file", where=where, fix="use one data set")
    ordered = other.rows(np.array([place[id_] for id_ in base.ids], np.intp))
    assert base.present is not None  # of independent labels
    assert ordered.present is not None
    if not np.array_equal(ordered.present, base.present):
        raise DataError(
            "labels some ids otherwise than the first file",
            where=where,
            fix="two models are compared on the same rows; of different rows leave out --compare",
        )
    return ordered
