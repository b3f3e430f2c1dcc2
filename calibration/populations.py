"""Do the rows that a confidence was fitted on and those it is judged on have the same class shares?

Pearson's X^2 of the class counts, its p by random draws with the same margins (chi-square tables fail where classes are
rare), and phi^2 = (X^2 - df) / N, an effect size that is 0 on average where nothing changed. `clear` asks for both:
p < .01, so that noise is not called a shift, and phi^2 > .02, so that a shift that changes nothing is not named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.artifacts.model_card import Prior
from calibrant.artifacts.predictions import Source
from calibrant.shares import shares

Vector = NDArray[np.float64]
_DRAWS = 999
_P, _EFFECT = 0.01, 0.02


@dataclass(frozen=True)
class Population:
    """Class shares; `rows` is how many rows they were counted on, None where they are given, not counted."""

    shares: Vector
    rows: int | None = None

    @classmethod
    def counted(cls, counts: ArrayLike) -> Population:
        return cls(shares(counts, name="class counts"), int(np.sum(np.asarray(counts))))

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.rint(self.shares * (self.rows or 0)).astype(np.int64)


@dataclass(frozen=True)
class Shift:
    p: float
    effect: float  # phi^2

    @property
    def clear(self) -> bool:
        return self.p < _P and self.effect > _EFFECT


def shift_between(a: Population, b: Population, *, seed: int = 0) -> Shift:
    """Two counted populations: hypergeometric draws; one counted, one given: multinomial; two given: no noise."""
    rng = np.random.default_rng(seed)
    if a.rows is None and b.rows is None:
        mean = (a.shares + b.shares) / 2
        effect = float(_ratio((a.shares - b.shares) ** 2 / 4, mean).sum())
        return Shift(0.0 if effect > 0 else 1.0, effect)
    if a.rows is None or b.rows is None:
        counted, given = (b, a) if a.rows is None else (a, b)
        rows = counted.rows or 0
        expected = rows * given.shares
        if ((counted.counts > 0) & (given.shares == 0)).any():
            return Shift(0.0, float("inf"))
        found = _against(counted.counts[None], expected)[0]
        draws = _against(rng.multinomial(rows, given.shares / given.shares.sum(), _DRAWS), expected)
        classes, rows_of_all = int((given.shares > 0).sum()), rows
    else:
        total = a.counts + b.counts
        found = _between(a.counts[None], total)[0]
        drawn = rng.multivariate_hypergeometric(total, int(a.counts.sum()), _DRAWS, method="marginals")
        draws = _between(drawn, total)
        classes, rows_of_all = int((total > 0).sum()), int(total.sum())
    p = (1 + int((draws >= found - 1e-9).sum())) / (1 + _DRAWS)
    return Shift(p, max(0.0, float(found - (classes - 1)) / max(rows_of_all, 1)))


def fitted_population(fitted_on: Mapping[str, Any]) -> Population | None:
    """The class shares that a calibrator's confidence is right for; None where the file does not say."""
    given = fitted_on.get("population")
    if given is not None:
        return Population(shares(given, name="population"))
    if fitted_on.get("weighted") or fitted_on.get("prior") is None or not fitted_on.get("rows"):
        return None
    return Population(shares(fitted_on["prior"], name="class shares"), int(fitted_on["rows"]))


def other_shares(
    rows: NDArray[np.int64], prior: Prior, source: Source, *, adjust: float | None, follow: str, name: str
) -> str | None:
    """What to say where the rows clearly have other class shares than they are taken to have, with the right call.

    `rows`: by class. They are taken to follow the target of the correction, or with `follow` "train", and without a
    correction, the training prior. `name` is the file, as it stands in the call.
    """
    ours = Population.counted(rows)
    train = None if source.train_prior is None else Population(shares(source.train_prior))
    as_train = train is not None and not shift_between(ours, train).clear
    if adjust is None or follow == "train":
        if train is None or as_train:
            return None
        most = _most_apart(ours, train, source)
        if adjust is not None:
            return (
                f"--rows-follow train, but these rows do not have the shares of training ({most}), so the map takes up "
                f"the difference. If the place of use is as these rows are: calibrant calibrate {name} --adjust "
                f"{adjust:g} --target-prior shares:{name}"
            )
        return (
            f"these rows have other class shares than training ({most}); the confidence is right for shares like "
            f"theirs. For those of training: calibrant calibrate {name} --target-prior train"
        )
    target = Population(shares(np.ones(len(rows)) if prior.target is None else prior.target))
    if not shift_between(ours, target).clear:
        return None
    wanted = "the uniform prior" if prior.target is None else "the target prior"
    said = (
        f"the map is fitted inside the correction, as if these rows followed {wanted}, and they do not "
        f"({_most_apart(ours, target, source)}), so it takes up the difference. "
    )
    return said + (
        "They have the shares of training: add --rows-follow train"
        if as_train
        else f"Give what they follow: --target-prior shares:{name}"
    )


def _most_apart(ours: Population, other: Population, source: Source) -> str:
    k = int(np.abs(ours.shares - other.shares).argmax())
    return f"{source.class_names[k]} {100 * ours.shares[k]:.1f} % here, {100 * other.shares[k]:.1f} % there"


def _against(counts: NDArray[np.int64], expected: Vector) -> Vector:
    found: Vector = _ratio((counts - expected) ** 2, np.broadcast_to(expected, counts.shape)).sum(axis=-1)
    return found


def _between(first: NDArray[np.int64], total: NDArray[np.int64]) -> Vector:
    """X^2 of the table (first, total - first) by class."""
    share = first.sum(axis=-1, keepdims=True) / total.sum()
    expected = total * share
    found: Vector = _ratio((first - expected) ** 2, expected * (1 - share)).sum(axis=-1)
    return found


def _ratio(a: Vector, b: Vector) -> Vector:
    return np.divide(a, b, out=np.zeros(np.broadcast_shapes(a.shape, b.shape)), where=b > 0)
