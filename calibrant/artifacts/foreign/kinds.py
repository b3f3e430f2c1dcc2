"""Logits or probabilities? Told from the values of all rows, never from a name, and asked where they do not say.

| all rows | verdict |
| in [0, 1], sums 1 | probabilities: log p, zeros at half the resolution |
| <= 0, logsumexp 0 | log-probabilities, which serve as logits: softmax gives them back |
| sums 100 | percent |
| two columns with sum 0 | the margin s twice, p = sigmoid(s): halved |
| one column in [0, 1] | P(class 1); all >= .5 is the winner's confidence and refused |
| one column beyond | logit of class 1 |
| in [0, 1], sums that differ | sigmoid: of independent labels, or of one against the rest, which must be said |
| in [0, 1], one sum below 1 | columns are missing: refused |
| only 0 and 1 | decisions, or labels: refused |
| else | logits |

"Sums 1" allows what the precision of the values allows. A row in a hundred that breaks the rule is damage and named.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.foreign.outcome import Outcome
from calibrant.artifacts.foreign.precision import EXACT_FLOOR, Precision, precision_of
from calibrant.errors import DataError

Kind = Literal["logits", "probabilities", "log-probabilities", "percent", "sigmoid"]
KINDS: tuple[Kind, ...] = ("logits", "probabilities", "log-probabilities", "percent", "sigmoid")
Matrix = NDArray[np.float64]

FEWEST_ROWS = 20  # that tell by themselves
MANY_ZEROS = 0.05  # share of entries written as 0 above which the temperature depends on what they stand for
_DAMAGED = 0.01  # share of rows that may break a rule that all others keep
_ASK = "say what they are with --kind " + ", ".join(KINDS)


@dataclass(frozen=True)
class Rounded:
    """Probabilities whose zeros were raised to `floor`; `zeros` is their share."""

    floor: float
    zeros: float

    @property
    def hides(self) -> bool:
        """Do the zeros decide what is fitted?"""
        return self.zeros > MANY_ZEROS and self.floor > EXACT_FLOOR


@dataclass(frozen=True)
class Told:
    """The verdict, and the values as logits (N, C) of `outcome`."""

    kind: Kind
    logits: Matrix
    rounded: Rounded | None = None
    notes: tuple[str, ...] = ()


def tell(values: Matrix, *, outcome: Outcome, asked: Kind | None, where: Path) -> Told:
    """What (N, C), or one column (N, 1) of two classes, is; `asked` wins unless the values say that it cannot be."""
    n, width = values.shape
    _check_finite(values, where)
    if asked is None and n < FEWEST_ROWS:
        raise DataError(f"{n} rows are too few to tell logits from probabilities", where=where, fix=_ASK)
    if width == 1 and outcome == "exclusive":
        return _one_column(values[:, 0], asked, where)
    unit = bool((values >= 0).all() and (values <= 1).all())
    if unit and asked != "logits" and bool(((values == 0) | (values == 1)).all()):
        raise DataError(
            "holds only 0 and 1: decisions or one-hot labels, which say nothing about confidence",
            where=where,
            fix="store what the model puts out before it decides",
        )
    if outcome == "independent":
        return _independent(values, unit, asked, where)
    return _exclusive(values, unit, asked, where)


def _exclusive(values: Matrix, unit: bool, asked: Kind | None, where: Path) -> Told:
    _check_some_class(values, where)
    precision = precision_of(values)
    sums = values.sum(axis=1)
    one = np.abs(sums - 1) <= precision.row_sum
    inside = ((values >= -1e-3) & (values <= 1 + 1e-3)).all(axis=1)
    hundred = (np.abs(sums - 100) <= 100 * precision.row_sum) & (values >= 0).all(axis=1)
    if asked == "sigmoid":
        return _from_sigmoid(values, unit, precision, where)
    if asked in (None, "probabilities") and unit and one.all():
        return _from_probabilities(values, precision)
    if asked in (None, "percent") and hundred.all():
        told = _from_probabilities(values / 100, precision_of(values / 100))
        return Told("percent", told.logits, told.rounded, ("the values are percent and were divided by 100",))
    log_p = _log_probabilities(values, precision)
    if asked in (None, "log-probabilities") and log_p:
        floor = np.log(EXACT_FLOOR)
        return Told("log-probabilities", np.maximum(values, floor), None, ("the values are log-probabilities",))
    if asked == "logits" and (inside & one).all() and len(values) >= FEWEST_ROWS:
        raise DataError("are probabilities, not logits: every row adds up to one", where=where, fix="drop --kind")
    _refuse_near_probabilities(values, unit, inside & one, precision, asked, where)
    if values.shape[1] == 2 and (values[:, 0] == -values[:, 1]).all() and values.any():
        note = "the two columns add up to 0, so they are the margin s twice with p = sigmoid(s): halved"
        return Told("logits", values / 2, None, (note,))
    return Told("logits", values)


def _refuse_near_probabilities(
    values: Matrix, unit: bool, good: NDArray[np.bool_], precision: Precision, asked: Kind | None, where: Path
) -> None:
    if asked == "logits":
        return
    sums, n = values.sum(axis=1), len(values)
    wrong = np.flatnonzero(~good)
    if asked in ("percent", "log-probabilities"):
        raise DataError(f"the values are no {asked}", where=where, fix=_ASK)
    if len(wrong) and (asked == "probabilities" or len(wrong) <= _DAMAGED * n):
        row = int(wrong[0])
        raise DataError(
            f"{len(wrong):,} of {n:,} rows are no probabilities that add up to one (row {row + 1} adds up to "
            f"{sums[row]:.6g}; {precision.name} would allow {precision.row_sum:.1g})",
            where=where,
            fix="repair or drop them" if asked is None else "repair them, or drop --kind probabilities",
        )
    if not len(wrong) and not unit:
        raise DataError(
            "rows add up to one but hold values below 0 or above 1",
            where=where,
            fix="if they are probabilities, clip them: p.clip(0, 1)",
        )
    if not unit:
        return
    if np.ptp(sums) <= 2 * precision.row_sum + 1e-6 and sums.mean() < 1:
        raise DataError(
            f"every row adds up to {sums.mean():.4g}, not 1: columns of some classes are missing",
            where=where,
            fix="store all classes, not the top few",
        )
    raise DataError(
        f"all values lie between 0 and 1, but rows add up to {sums.min():.3g} .. {sums.max():.3g}",
        where=where,
        fix="one against the rest: --kind sigmoid; independent labels: --outcome independent; else --kind logits",
    )


def _one_column(values: Matrix, asked: Kind | None, where: Path) -> Told:
    unit = bool((values >= 0).all() and (values <= 1).all())
    probabilities = asked in ("probabilities", "sigmoid", "percent") or (asked is None and unit)
    if asked == "percent":
        values, unit = values / 100, bool((values >= 0).all() and (values <= 100).all())
    if not probabilities:
        if asked == "log-probabilities":
            raise DataError("one column of log-probabilities is not read", where=where, fix="store both classes")
        return Told("logits", np.stack([np.zeros_like(values), values], axis=1))
    if not unit:
        raise DataError(f"one column of {asked} holds values outside of 0..1", where=where, fix=_ASK)
    if bool(((values == 0) | (values == 1)).all()):
        raise DataError("holds only 0 and 1: decisions, not probabilities", where=where, fix="store probabilities")
    if asked is None and float(values.min()) >= 0.5:
        raise DataError(
            "one column that never falls below .5 is the confidence of the winner, not the probability of class 1",
            where=where,
            fix="store a column for each class; if it is P(class 1), say --kind probabilities",
        )
    told = _from_sigmoid(values[:, None], unit, precision_of(values), where)
    s = told.logits[:, 0]
    return Told("probabilities", np.stack([np.zeros_like(s), s], axis=1), told.rounded)


def _independent(values: Matrix, unit: bool, asked: Kind | None, where: Path) -> Told:
    if asked in ("percent", "log-probabilities"):
        raise DataError(f"{asked} of independent labels are not read", where=where, fix="store sigmoid(z) or z")
    precision = precision_of(values)
    sums = np.abs(values.sum(axis=1) - 1) <= precision.row_sum
    if unit and asked in (None, "probabilities", "sigmoid"):
        if values.shape[1] > 1 and sums.all():
            raise DataError(
                "rows add up to one, so the classes exclude one another, but the labels name several at once",
                where=where,
                fix="give one label a row, or the outputs of a sigmoid",
            )
        return _from_sigmoid(values, unit, precision, where)
    if asked in ("probabilities", "sigmoid"):
        raise DataError("holds values outside of 0..1, which are no probabilities", where=where, fix="drop --kind")
    if np.isneginf(values).any():
        raise DataError("holds -infinity in logits", where=where, fix="write a finite number")
    return Told("logits", values)


def _from_probabilities(p: Matrix, precision: Precision) -> Told:
    zeros = float((p == 0).mean())
    return Told("probabilities", np.log(np.maximum(p, precision.floor)), Rounded(precision.floor, zeros))


def _from_sigmoid(p: Matrix, unit: bool, precision: Precision, where: Path) -> Told:
    """logit(p) = log p - log(1 - p)."""
    if not unit:
        raise DataError("holds values outside of 0..1", where=where, fix="drop --kind sigmoid")
    floor = precision.floor
    inside = np.clip(p, floor, 1 - max(floor, 2.0**-53))
    ends = float(((p == 0) | (p == 1)).mean())
    return Told("sigmoid", np.log(inside) - np.log1p(-inside), Rounded(floor, ends))


def _log_probabilities(values: Matrix, precision: Precision) -> bool:
    """<= 0 and logsumexp 0 in every row; rounding moves the sum of the probabilities by as much as it moves theirs."""
    if (values > 1e-6).any():
        return False
    total = np.exp(values).sum(axis=1)
    tolerance = 6e-3 if precision.name in ("float16", "bfloat16") else max(1e-5, precision.resolution)
    return bool((np.abs(total - 1) <= min(tolerance, 0.1)).all())


def _check_finite(values: Matrix, where: Path) -> None:
    bad = np.isnan(values) | np.isposinf(values)
    if bad.any():
        row = int(np.flatnonzero(bad.any(axis=1))[0])
        n = int(bad.any(axis=1).sum())
        raise DataError(f"{n:,} rows hold NaN or infinity, the first is row {row + 1}", where=where, fix="drop them")


def _check_some_class(values: Matrix, where: Path) -> None:
    nothing = np.flatnonzero(np.isneginf(values).all(axis=1))
    if len(nothing):
        raise DataError(
            f"{len(nothing):,} rows rule out every class (nothing but -infinity), the first is row {nothing[0] + 1}",
            where=where,
            fix="drop them",
        )
