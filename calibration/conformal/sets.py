"""Prediction sets with a coverage guarantee: a few numbers that a deployed model carries.

Split conformal: with scores s_i = s(x_i, y_i) on n held-out rows, the threshold t is the ceil((n + 1)(1 - alpha))-th
smallest score, and the set of a new row is {k : s(x, k) <= t}: it holds the label with probability at least 1 - alpha
over rows like the held-out ones. Class-conditional: the same within the rows of each class, which stays valid under
any class prior.

Under a target prior (Podkopaev and Ramdas 2021): rows weigh w(y) = pi_target(y) / pi_rows(y), and

    t_k = smallest t with  sum_i w(y_i) [s_i <= t]  >=  (1 - alpha) (sum_i w(y_i) + w(k)),

one threshold a class, the point at infinity weighing w(k). The probabilities must be those of the target prior, so
adjust first and score after: with unadjusted ones the guarantee is the same and the sets are half as large again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.conformal.scores import Kind, all_scores, check_kind, sharpened
from calibrant.calibration.inputs import check_labels, check_probs
from calibrant.errors import ConfigError, FormatError
from calibrant.shares import class_weights

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class ConformalSet:
    """Numbers of a prediction set. `threshold` infinite (stored as null): too few rows for this alpha, all classes.

    `class_thresholds` replaces the threshold by one for each class (class-conditional, or under a target prior).
    `temperature` is the set's own, applied to calibrated logits before the softmax. `effective_rows`: rows of equal
    weight that would tell as much.
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
    effective_rows: float | None = None

    def contains(self, probs: ArrayLike, *, rng: np.random.Generator | None = None) -> NDArray[np.bool_]:
        """(N, C): which classes belong to each row's set. `probs` as the model reports them."""
        p = check_probs(probs).astype(np.float64)
        return self.members(p, u=_u(self.randomised, len(p), rng))

    def members(self, p: NDArray[np.float64], *, u: Any = 0.0, slack: float = 0.0) -> NDArray[np.bool_]:
        """The same on checked probabilities. Without chance (u = 0) a randomised set only grows."""
        scores = all_scores(sharpened(p, self.temperature), self.kind, penalty=self.penalty, rank=self.rank, u=u)
        limit = self.threshold if self.class_thresholds is None else np.asarray(self.class_thresholds)
        inside: NDArray[np.bool_] = scores <= limit + slack
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
            kind = str(block["kind"])
            values = {f.name: block[f.name] for f in fields(cls) if f.name in block}
            values["threshold"] = _infinite(values["threshold"])
            if values.get("class_thresholds") is not None:
                values["class_thresholds"] = tuple(_infinite(t) for t in values["class_thresholds"])
            found = cls(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"damaged prediction set ({error!r})") from None
        try:
            check_kind(kind)
        except ConfigError as error:
            raise FormatError(error.what, fix="update calibrant") from None
        return found


def fit_conformal(
    probs: ArrayLike,
    labels: ArrayLike,
    *,
    alpha: float = 0.1,
    kind: Kind = "lac",
    class_conditional: bool = False,
    target_prior: ArrayLike | None = None,
    penalty: float = 0.01,
    rank: int = 5,
    temperature: float = 1.0,
    rng: np.random.Generator | None = None,
) -> ConformalSet:
    """Thresholds from held-out rows. With `rng` APS and RAPS are randomised (exact coverage), without deterministic.

    `target_prior`: the sets hold their coverage where the classes have these shares; give probabilities of that prior.
    """
    if not 0 < alpha < 1:
        raise ConfigError(f"alpha is {alpha}, expected between 0 and 1")
    check_kind(kind)
    p = sharpened(check_probs(probs).astype(np.float64), temperature)
    y, classes = check_labels(labels, *p.shape), p.shape[1]
    if kind != "raps":
        penalty, rank = 0.0, 0
    randomised = rng is not None and kind != "lac"
    scores = all_scores(p, kind, penalty=penalty, rank=rank, u=_u(randomised, len(p), rng))[np.arange(len(y)), y]
    threshold, thresholds, effective = conformal_quantile(scores, alpha), None, None
    if class_conditional:  # holds under any prior, so a target prior changes nothing
        thresholds = tuple(conformal_quantile(scores[y == k], alpha) for k in range(classes))
    elif target_prior is not None:
        by_class = class_weights(np.bincount(y, minlength=classes), target_prior)
        w = by_class[y]
        thresholds = tuple(weighted_quantiles(scores, w, by_class, alpha).tolist())
        threshold, effective = max(thresholds), float(w.sum() ** 2 / np.dot(w, w))
    return ConformalSet(kind, alpha, threshold, len(y), randomised, penalty, rank, temperature, thresholds, effective)


def conformal_quantile(scores: Vector, alpha: float) -> float:
    """The ceil((n + 1)(1 - alpha))-th smallest score; infinite where that is more than n."""
    n = len(scores)
    wanted = int(np.ceil((n + 1) * (1 - alpha) - 1e-9))
    return float("inf") if wanted > n else float(np.partition(scores, wanted - 1)[wanted - 1])


def weighted_quantiles(scores: Vector, weights: Vector, at_infinity: Vector, alpha: float) -> Vector:
    """t_k for each weight w(k) of the point at infinity; infinite where all rows together do not reach 1 - alpha."""
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(weights[order])
    wanted = (1 - alpha) * (reached[-1] + at_infinity)
    index = np.searchsorted(reached, wanted - 1e-9 * reached[-1], side="left")
    found: Vector = np.append(scores[order], np.inf)[index]
    return found


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
