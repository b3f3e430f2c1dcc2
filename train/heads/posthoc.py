"""What is done to the logits of a trained head, fitted on validation rows and deployed as the one formula:

    p = softmax( w_k z_k + c_k - a r_k ),    r = log(pi_train / pi_target), pi_target uniform

z: the logits that the head claims. w_k = 1 / T_k; c_k: shifts that meet a wanted recall or precision; a: strength.
The strength is chosen on the raw logits, z - tau r, whose decisions a temperature does not move: a = tau / T. What the
training has absorbed already and tau are on one scale, and their sum is the total strength. Closed-form heads claim no
probabilities: theirs is the scale after the temperature, tau = a.

Temperature, "likelihood" and class slopes see the validation rows as they are, unless `target_prior` asks for other
class shares: what is fitted is right for those. A strength by macro-F1 ("auto") sees decisions only, and those of 500
rows are a noisy guide; it maximises the very macro-F1 that the table reports. "likelihood" fits a and T together, by
the likelihood of the validation rows: a little less F1 where the guide was right, far less spread.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration import Calibrator, fit
from calibrant.calibration.metrics import macro_f1
from calibrant.calibration.softmax import log_softmax, softmax
from calibrant.priors import read_prior
from calibrant.settings.heads import PostHocConfig
from calibrant.shares import class_weights, log_prior_ratio, shares

log = logging.getLogger(__name__)

Vector = NDArray[np.float64]
GRID = np.round(np.arange(0.0, 4.0001, 0.1), 10)  # of tau, the total strength it may reach on top of the training's
_RIDGE = 0.05  # pull of a class's log temperature towards the common one: classes have a handful of rows


@dataclass(frozen=True)
class PostHoc:
    """w, c and a of the formula; `tau` is a on the scale of the raw logits."""

    weights: Vector  # (C,)
    shifts: Vector  # (C,)
    strength: float  # a
    tau: float
    ratio: Vector  # r (C,)
    unmet: tuple[int, ...] = ()  # classes whose wanted recall or precision no shift reached
    population: Vector | None = None  # (C,) class shares that it was fitted for; None: those of the rows

    def logits(self, z: NDArray[np.floating[Any]]) -> Vector:
        result: Vector = np.asarray(z, np.float64) * self.weights + self.shifts - self.strength * self.ratio
        return result

    def probabilities(self, z: NDArray[np.floating[Any]]) -> Vector:
        return softmax(self.logits(z))

    @property
    def changes(self) -> bool:
        """Does it do anything to the logits?"""
        return bool(np.any(self.weights != 1) or np.any(self.shifts != 0) or self.strength)

    def calibrator(self) -> Calibrator:
        """w and c; the prior term stands beside them, see `run.write_run`."""
        classes = len(self.weights)
        if np.ptp(self.weights) == 0 and not self.shifts.any():
            return Calibrator("temperature", classes, {"temperature": float(1.0 / self.weights[0])})
        return Calibrator("vector", classes, {"weights": self.weights.tolist(), "bias": self.shifts.tolist()})


def fit_posthoc(
    config: PostHocConfig,
    z: NDArray[np.floating[Any]],
    labels: NDArray[np.int64],
    counts: NDArray[np.int64],
    *,
    claims: bool = True,
    class_names: Sequence[str] | None = None,
) -> PostHoc:
    """Fit on validation logits z (N, C). counts: (C,) training images. claims: softmax(z) is meant as probabilities."""
    ratio = log_prior_ratio(counts, smooth=0.0 if counts.min() > 0 else 1.0)
    z64: Vector = np.asarray(z, np.float64)
    population = None
    row_weights = np.ones(len(labels))
    if config.target_prior is not None:
        names = class_names if class_names is not None else [str(k) for k in range(len(counts))]
        population = read_prior(config.target_prior, names, train=counts, where="posthoc.target_prior")
        present = np.bincount(labels, minlength=len(counts)) > 0  # no weight makes up for a class without rows
        population = shares(np.where(present, population, 0.0), name="posthoc.target_prior")
        row_weights = class_weights(np.bincount(labels, minlength=len(counts)), population)[labels]
    tempered = config.temperature != "none"
    unit = 1.0  # of tau, in raw logits
    if not claims and tempered:
        unit = 1.0 / likeliest(z64, labels, ratio, row_weights)[0]
    slope = None
    if config.adjust == "likelihood":
        slope, offset = likeliest(z64, labels, ratio, row_weights, slope=None if tempered else 1.0)
        tau = offset / slope / unit
    elif config.adjust == "auto":
        tau = float(choose_strength(z64 / unit, labels, ratio))
    else:
        tau = float(config.adjust)
    u = z64 - tau * unit * ratio
    b = np.ones(len(counts))
    if slope is not None:
        b[:] = slope
    elif tempered:
        calibrator = fit("temperature", u, labels, weights=row_weights)
        b[:] = 1.0 / float(calibrator.parameters["temperature"])
    strength = tau * unit * float(b[0])
    if config.temperature == "per-class":
        b = class_slopes(z64, labels, row_weights, offset=-strength * ratio, common=float(b[0]))
    shifts: Vector = np.zeros(len(counts))
    unmet: tuple[int, ...] = ()
    if config.recall or config.precision:
        scores = z64 * b - strength * ratio
        shifts, unmet = wanted_shifts(scores, labels, recall=config.recall, precision=config.precision)
    return PostHoc(b, shifts, strength, tau, ratio, unmet, population)


def likeliest(
    z: Vector, labels: NDArray[np.int64], ratio: Vector, weights: Vector, *, slope: float | None = None
) -> tuple[float, float]:
    """b = 1/T and a that minimise the weighted NLL of softmax(b z - a r); b stays at `slope` where given.

    Convex in (b, a). Newton steps, halved until the NLL falls: the scale of z does not matter.
    """
    w = weights / weights.sum()
    rows = np.arange(len(labels))
    centred = z - z.max(1, keepdims=True)  # a shift of a row changes nothing, and keeps the exponents small
    axes = (centred, np.broadcast_to(-ratio, z.shape))

    def look(x: Vector) -> tuple[float, Vector, Vector]:
        u = x[0] * axes[0] + x[1] * axes[1]
        log_p = log_softmax(u)
        p = np.exp(log_p)
        value = float(-(w @ log_p[rows, labels]))
        means = [(p * f).sum(1) for f in axes]
        gradient = np.asarray([w @ (m - f[rows, labels]) for m, f in zip(means, axes, strict=True)])
        hessian = np.asarray(
            [
                [w @ ((p * f * g).sum(1) - m * n) for g, n in zip(axes, means, strict=True)]
                for f, m in zip(axes, means, strict=True)
            ]
        )
        return value, gradient, hessian

    spread = float(np.abs(centred).mean())
    x = np.asarray([slope if slope is not None else 1.0 / max(spread, 1e-12), 0.0])
    free = np.asarray([slope is None, True])
    value, gradient, hessian = look(x)
    for _ in range(100):
        scaled = np.where(np.outer(free, free), hessian, np.eye(2))
        # Equal counts: a does nothing, its row is 0, and the shortest solution leaves it at 0.
        step = np.linalg.lstsq(scaled, np.where(free, gradient, 0.0), rcond=None)[0]
        size = 1.0
        while size > 1e-8:
            candidate = x - size * step
            if candidate[0] > 0 and (found := look(candidate))[0] <= value:
                break
            size /= 2
        else:
            break
        done = value - found[0] < 1e-12
        x, (value, gradient, hessian) = candidate, found
        if done:
            break
    return float(x[0]), float(x[1])


def choose_strength(z: Vector, labels: NDArray[np.int64], ratio: Vector) -> float:
    """tau of the grid with the best validation macro-F1, each value judged with its neighbours: the curve is noisy.

    Only values that do not lower the macro-F1 of these very rows are chosen from.
    """
    scores = np.asarray([macro_f1(softmax(z - tau * ratio), labels) for tau in GRID])
    padded = np.concatenate([scores[:1], scores, scores[-1:]])
    smooth = (padded[:-2] + padded[1:-1] + padded[2:]) / 3
    return float(GRID[int(np.where(scores >= scores[0], smooth, -1.0).argmax())])


def class_slopes(z: Vector, labels: NDArray[np.int64], weights: Vector, *, offset: Vector, common: float) -> Vector:
    """b_k = 1/T_k that minimise the NLL of softmax(b_k z_k + offset_k) plus a ridge on log(b_k / common)."""
    from scipy.optimize import minimize

    n, w = len(labels), weights / weights.sum()
    rows = np.arange(n)

    def value(log_b: Vector) -> tuple[float, Vector]:
        b = np.exp(log_b)
        u = z * b + offset
        log_p = log_softmax(u)
        nll = float(-(w @ log_p[rows, labels]))
        p = np.exp(log_p)
        p[rows, labels] -= 1
        d = log_b - np.log(common)
        gradient = (w @ (p * z)) * b + _RIDGE * d / len(d)
        return nll + 0.5 * _RIDGE * float(d @ d) / len(d), gradient

    found = minimize(value, np.full(z.shape[1], np.log(common)), jac=True, method="L-BFGS-B")
    result: Vector = np.exp(found.x)
    return result


def wanted_shifts(
    scores: Vector, labels: NDArray[np.int64], *, recall: float = 0.0, precision: float = 0.0, passes: int = 50
) -> tuple[Vector, tuple[int, ...]]:
    """c (C,) with which argmax(scores + c) has the wanted recall (or precision) in every class, and who has it not.

    One class after the other gets the smallest change that meets its own goal, in passes: raising one class takes rows
    from the others, so shifts that meet every goal may not exist, and the passes then end in a race. The shifts after
    the pass that left the fewest classes behind are kept. Classes without rows are left alone.
    """
    classes = scores.shape[1]
    present = np.flatnonzero(np.bincount(labels, minlength=classes))
    goal = recall or precision
    move = _raise_for_recall if recall else _lower_for_precision

    def behind(c: Vector) -> tuple[int, ...]:
        predicted = (scores + c).argmax(1)
        reached = {int(k): _reached(predicted, labels, int(k), recall=bool(recall)) for k in present}
        return tuple(k for k, value in reached.items() if value < goal - 1e-12)

    c: Vector = np.zeros(classes)
    best, unmet = c.copy(), behind(c)
    for _ in range(passes):
        moved = False
        for k in present:
            step = move(scores + c, labels, int(k), goal)
            if step:
                c[k] += step
                moved = True
        left = behind(c)
        if len(left) < len(unmet):
            best, unmet = c.copy(), left
        if not moved or not unmet:
            break
    if unmet:
        log.warning(
            "no shifts reach %s %.2f in %d of %d classes",
            "recall" if recall else "precision",
            goal,
            len(unmet),
            len(present),
        )
    return best, unmet


def _margin(scores: Vector, k: int) -> Vector:
    """How far class k is behind the best other class, per row; it wins below 0 (and at 0 where k comes first)."""
    others = scores.copy()
    others[:, k] = -np.inf
    result: Vector = others.max(1) - scores[:, k]
    return result


def _raise_for_recall(scores: Vector, labels: NDArray[np.int64], k: int, goal: float) -> float:
    behind = np.sort(_margin(scores[labels == k], k))
    needed = behind[int(np.ceil(goal * len(behind) - 1e-9)) - 1]
    return 0.0 if needed < 0 else float(needed) + 1e-6


def _lower_for_precision(scores: Vector, labels: NDArray[np.int64], k: int, goal: float) -> float:
    """The smallest drop after which the rows still given to k are right often enough; none left counts as met."""
    behind = _margin(scores, k)
    claimed = np.flatnonzero(behind <= 0)
    order = claimed[np.argsort(behind[claimed], kind="stable")]  # the surest first
    if not len(order):
        return 0.0
    right = np.cumsum(labels[order] == k) / np.arange(1, len(order) + 1)
    if right[-1] >= goal - 1e-12:
        return 0.0
    good = np.flatnonzero(right >= goal - 1e-12)
    keep = int(good[-1]) + 1 if len(good) else 0
    return float(behind[order[keep]]) - 1e-6  # the first row to lose


def _reached(predicted: NDArray[np.intp], labels: NDArray[np.int64], k: int, *, recall: bool) -> float:
    chosen = labels == k if recall else predicted == k
    if not chosen.any():
        return 1.0
    return float(((predicted == k) & (labels == k)).sum() / chosen.sum())
