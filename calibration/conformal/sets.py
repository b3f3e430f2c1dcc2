"""Prediction sets with a coverage guarantee, and when to abstain: a few numbers that a deployed model carries.

Split conformal: with scores s_i = s(x_i, y_i) on n held-out rows, the threshold is the ceil((n + 1)(1 - alpha))-th
smallest score, and the set of a new row is {k : s(x, k) <= threshold}: it holds the label with probability at least
1 - alpha over exchangeable rows. Scores, p sorted from high to low, rank r_k from 1:
    LAC   1 - p_k                                              (Sadinle et al. 2019): smallest sets on average
    APS   sum of p above k + u p_k                            (Romano et al. 2020): coverage more even over hard rows
    RAPS  APS + penalty max(0, r_k - rank)                     (Angelopoulos et al. 2021): without APS's long tails
u is uniform in [0, 1], drawn for each row from the generator that is passed; without one it is 0, and a set is the same
each time and never empty. Coverage then exceeds 1 - alpha only where the top class alone is right more often than that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.inputs import check_labels, check_probs
from calibrant.calibration.intervals.means import share_interval
from calibrant.calibration.metrics.ranking import risk_coverage
from calibrant.calibration.softmax import softmax
from calibrant.errors import ConfigError, FormatError

Kind = Literal["lac", "aps", "raps"]
KINDS: tuple[Kind, ...] = ("lac", "aps", "raps")
Probs = NDArray[np.float64]


@dataclass(frozen=True)
class ConformalSet:
    """Numbers of a prediction set. `threshold` infinite (stored as null): too few rows for this alpha, all classes.

    `class_thresholds` replaces the threshold by one for each label (class-conditional coverage). `temperature` is the
    set's own, applied to calibrated logits before the softmax: it shortens sets and does not touch the probabilities.
    """

    kind: Kind
    alpha: float
    threshold: float
    rows: int
    randomised: bool = False
    penalty: float = 0.0  # RAPS
    rank: int = 0  # RAPS
    temperature: float = 1.0
    class_thresholds: tuple[float, ...] | None = None

    def contains(self, probs: ArrayLike, *, rng: np.random.Generator | None = None) -> NDArray[np.bool_]:
        """(N, C): which classes belong to each row's set. `probs` as the model reports them."""
        p = sharpened(check_probs(probs).astype(np.float64), self.temperature)
        scores = all_scores(p, self.kind, penalty=self.penalty, rank=self.rank, u=_u(self.randomised, len(p), rng))
        limit = self.threshold if self.class_thresholds is None else np.asarray(self.class_thresholds)
        inside: NDArray[np.bool_] = scores <= limit
        return inside

    def to_dict(self) -> dict[str, Any]:
        block = asdict(self)
        block["threshold"] = _finite(self.threshold)
        if self.class_thresholds is not None:
            block["class_thresholds"] = [_finite(t) for t in self.class_thresholds]
        return block

    @classmethod
    def from_dict(cls, block: Mapping[str, Any]) -> ConformalSet:
        try:
            values = dict(block)
            values["threshold"] = _infinite(values["threshold"])
            if values.get("class_thresholds") is not None:
                values["class_thresholds"] = tuple(_infinite(t) for t in values["class_thresholds"])
            found = cls(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"damaged prediction set ({error!r})") from None
        if found.kind not in KINDS:
            raise FormatError(f'no prediction set of kind "{found.kind}"')
        return found


def fit_conformal(
    probs: ArrayLike, labels: ArrayLike, *, alpha: float = 0.1, kind: Kind = "lac", class_conditional: bool = False,
    penalty: float = 0.01, rank: int = 5, temperature: float = 1.0, rng: np.random.Generator | None = None,
) -> ConformalSet:  # fmt: skip
    """Thresholds from held-out rows. With `rng` APS and RAPS are randomised (exact coverage), without deterministic."""
    if not 0 < alpha < 1:
        raise ConfigError(f"alpha is {alpha}, expected between 0 and 1")
    if kind not in KINDS:
        raise ConfigError(f'no prediction set of kind "{kind}"', fix=f"known are: {', '.join(KINDS)}")
    p = sharpened(check_probs(probs).astype(np.float64), temperature)
    y = check_labels(labels, *p.shape)
    if kind != "raps":
        penalty, rank = 0.0, 0
    randomised = rng is not None and kind != "lac"
    scores = all_scores(p, kind, penalty=penalty, rank=rank, u=_u(randomised, len(p), rng))[np.arange(len(y)), y]
    thresholds = None
    if class_conditional:
        thresholds = tuple(conformal_quantile(scores[y == k], alpha) for k in range(p.shape[1]))
    return ConformalSet(
        kind, alpha, conformal_quantile(scores, alpha), len(y), randomised, penalty, rank, temperature, thresholds
    )


def conformal_quantile(scores: NDArray[np.float64], alpha: float) -> float:
    """The ceil((n + 1)(1 - alpha))-th smallest score; infinite where that is more than n."""
    n = len(scores)
    wanted = int(np.ceil((n + 1) * (1 - alpha) - 1e-9))
    return float("inf") if wanted > n else float(np.partition(scores, wanted - 1)[wanted - 1])


def all_scores(p: Probs, kind: Kind, *, penalty: float = 0.0, rank: int = 0, u: Any = 0.0) -> Probs:
    """s(x, k) of every class, (N, C)."""
    if kind == "lac":
        return 1.0 - p
    order = np.argsort(-p, axis=1, kind="stable")
    high_to_low = np.take_along_axis(p, order, axis=1)
    above = np.cumsum(high_to_low, axis=1) - high_to_low
    ordered = above + np.asarray(u).reshape(-1, 1) * high_to_low
    if kind == "raps":
        ordered = ordered + penalty * np.maximum(np.arange(1, p.shape[1] + 1) - rank, 0)
    scores = np.empty_like(ordered)
    np.put_along_axis(scores, order, ordered, axis=1)
    return scores


def set_temperature(
    probs: ArrayLike, labels: ArrayLike, *, alpha: float = 0.1, kind: Kind = "aps", seed: int = 0
) -> float:
    """The temperature, on top of calibrated probabilities, that makes the sets smallest.

    Chosen from a grid on half of the rows, judged on the other half, since calibrated confidence and short sets are
    different aims (Dabah & Tirer 2024). To keep the guarantee fit the threshold on rows that this has not seen.
    """
    p, n = check_probs(probs).astype(np.float64), len(np.asarray(labels))
    y = check_labels(labels, *p.shape)
    first = np.random.default_rng(seed).permutation(n) < n // 2
    best = (float("inf"), 1.0)
    for t in (0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0):
        found = fit_conformal(p[first], y[first], alpha=alpha, kind=kind, temperature=t)
        size = float(found.contains(p[~first]).sum(axis=1).mean())
        best = min(best, (size, t), key=lambda pair: (pair[0], abs(np.log(pair[1]))))
    return best[1]


@dataclass(frozen=True)
class SetQuality:
    """Coverage with its interval, sizes, and the worst class's coverage (of classes with at least 20 rows)."""

    coverage: float
    low: float
    high: float
    mean_size: float
    empty: float
    single: float
    worst_class: int | None
    worst_class_coverage: float | None
    by_size: tuple[tuple[int, int, float], ...]  # size, rows, coverage


def set_quality(
    sets: ConformalSet, probs: ArrayLike, labels: ArrayLike, *, rng: np.random.Generator | None = None
) -> SetQuality:
    inside = sets.contains(probs, rng=rng)
    y = check_labels(labels, *inside.shape)
    hit, size = inside[np.arange(len(y)), y], inside.sum(axis=1)
    coverage = float(hit.mean())
    rows = np.bincount(y, minlength=inside.shape[1])
    by_class = np.bincount(y, hit, inside.shape[1]) / np.maximum(rows, 1)
    enough = np.flatnonzero(rows >= 20)
    worst = int(enough[by_class[enough].argmin()]) if len(enough) else None
    low, high = share_interval(coverage, len(y))
    return SetQuality(
        coverage, low, high, float(size.mean()), float((size == 0).mean()), float((size == 1).mean()), worst,
        None if worst is None else float(by_class[worst]),
        tuple((int(s), int((size == s).sum()), float(hit[size == s].mean())) for s in np.unique(size)),
    )  # fmt: skip


# ---- abstaining ----


@dataclass(frozen=True)
class Abstention:
    """Answer when the confidence is at least `threshold`. `risk_high`: upper 95 % limit of the error rate answered."""

    threshold: float
    coverage: float
    risk: float
    risk_high: float
    rows: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def abstain_for_risk(probs: ArrayLike, labels: ArrayLike, *, risk: float, confident: bool = True) -> Abstention:
    """The lowest threshold at which the error rate of the answers is at most `risk`.

    `confident`: the upper 95 % limit of the error rate must be, not only the observed rate, which a threshold chosen on
    the same rows flatters.
    """
    if not 0 <= risk < 1:
        raise ConfigError(f"risk is {risk}, expected from 0 to below 1")
    curve, highs = _abstention_curve(probs, labels)
    met = np.flatnonzero((highs if confident else curve.risk) <= risk)
    if len(met) == 0:
        raise ConfigError(
            f"no threshold brings the error rate to {risk:g}" + (" with 95 % certainty" if confident else ""),
            fix=f"the lowest that can be shown here is {float((highs if confident else curve.risk).min()):.3g}",
        )
    return _abstention(curve, highs, int(met[-1]))


def abstain_for_coverage(probs: ArrayLike, labels: ArrayLike, *, coverage: float) -> Abstention:
    """The highest threshold that still answers at least `coverage` of the rows."""
    if not 0 < coverage <= 1:
        raise ConfigError(f"coverage is {coverage}, expected more than 0 and at most 1")
    curve, highs = _abstention_curve(probs, labels)
    return _abstention(curve, highs, int(np.flatnonzero(curve.coverage >= coverage - 1e-12)[0]))


def _abstention_curve(probs: ArrayLike, labels: ArrayLike) -> tuple[Any, NDArray[np.float64]]:
    p = check_probs(probs)
    y = check_labels(labels, *p.shape)
    predicted = p.argmax(axis=1)
    curve = risk_coverage(p[np.arange(len(p)), predicted], predicted != y)
    from scipy.special import betaincinv

    # Clopper-Pearson, one-sided: exact for small counts, which is where a strict threshold ends.
    highs = betaincinv(curve.errors + 1, np.maximum(curve.weight - curve.errors, 1e-12), 0.95)
    return curve, np.where(curve.errors >= curve.weight, 1.0, highs)


def _abstention(curve: Any, highs: NDArray[np.float64], i: int) -> Abstention:
    return Abstention(
        float(curve.threshold[i]), float(curve.coverage[i]), float(curve.risk[i]), float(highs[i]),
        int(round(float(curve.weight[-1]))),
    )  # fmt: skip


def sharpened(p: Probs, temperature: float) -> Probs:
    """softmax(log p / temperature)."""
    if temperature == 1.0:
        return p
    if not temperature > 0:
        raise ConfigError(f"temperature is {temperature}, expected more than 0")
    with np.errstate(divide="ignore"):
        z = np.log(p)
    return softmax(np.maximum(z, -700.0) / temperature)


def _u(randomised: bool, rows: int, rng: np.random.Generator | None) -> Any:
    if not randomised:
        return 0.0
    if rng is None:
        raise ValueError("this prediction set is randomised: pass rng")
    return rng.random(rows)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _infinite(value: float | None) -> float:
    return float("inf") if value is None else float(value)
