"""Which method, or which mixture of them: by cross-validated NLL, and by evidence where that can be computed.

Every row is predicted by maps that were fitted on other rows (five folds; fewer once 2,000 rows have been held out,
one where a fit takes seconds). The share of each candidate in a mixture of probabilities is how much it is believed
(`credence.py`): half of its log-evidence and up to half of what it gains in cross-validation, from a prior that gives a
fifth to the temperature. A weaker penalty is tried while the one before it is not ten nats behind the best. A full map
under a weak penalty stands beside that mixture, with the share that predicts held-out rows best, twenty pseudo-rows
holding it at 15 %: where classes are confused it gains more than evidence believes of few rows, and where nothing is to
be gained a mixture with it loses little, since its errors differ from those of the others.

Many classes (above thirty, evidence takes too long) with five rows a class: shares are those of a pool of five members
that maximise the likelihood of held-out rows (`pooling.py`), three pseudo-rows shared alike. Weak penalties win there,
and members that differ mend each other: on simulated tails and networks the pool mostly beats its best member. With
fewer rows than that, and beyond a hundred classes, Venn-Abers is one more candidate: it guesses well of classes with
hardly a row. (At a hundred classes with many rows it would double the time.)

A small share may go to the uniform distribution, against zeros that no map of the logits takes away: the share that
maximises the cross-validated likelihood with twenty pseudo-rows, one in a hundred of them uniform, where it brings more
than one nat in their sum.

Few rows so give a mixture that leans on what is simple, many a single map. Members below two hundredths are left out,
and one above .95 is taken by itself. For each member the mean loss and its paired difference to what was taken get 95 %
intervals over the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.adjustment import checked_ratio
from calibrant.calibration.calibrators.base import Calibrator
from calibrant.calibration.calibrators.estimation import credence
from calibrant.calibration.calibrators.estimation.evidence import affordable, log_evidence
from calibrant.calibration.calibrators.estimation.near import Near, fit_near
from calibrant.calibration.calibrators.estimation.pooling import (
    FOLDS,
    HeldOut,
    beside,
    folds_of,
    folds_worth,
    label_losses,
    shares,
)
from calibrant.calibration.calibrators.mixture import mixture
from calibrant.calibration.calibrators.structured import near_inputs
from calibrant.calibration.calibrators.temperature import steadied
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.calibration.intervals.means import mean_interval
from calibrant.errors import CalibrantError, ConfigError

Fit = Callable[..., Calibrator]
_LEAST_SHARE, _NEARLY_ALL = 0.02, 0.95
_ROWS_A_CLASS = 5  # from which many classes are pooled
_PSEUDO_ROWS = 3.0  # of that pool, the same share of them for each member
_CLEAR = 1.0  # nats that a uniform share has to bring in the sum of the rows
_WORK = 5e6  # rows x numbers of the largest map: beyond, one fold
_TOO_LARGE = 1.2e9
_NEAR = ("structured-vector", "vector", "structured")


@dataclass(frozen=True)
class Member:
    """A candidate: a method with its options, and how much it is believed before any row is seen."""

    method: str
    options: dict[str, Any] = field(default_factory=dict)
    prior: float = field(default=1.0, compare=False)

    @property
    def name(self) -> str:
        said = [f"{k} {v:g}" for k, v in self.options.items() if isinstance(v, float)]
        said += ["on logits"] if self.options.get("inputs") == "logits" else []
        return f"{self.method} ({', '.join(said)})" if said else self.method

    @property
    def path(self) -> tuple[str, Any]:
        """Members that differ by their penalty alone."""
        return self.method, self.options.get("inputs")

    @property
    def full(self) -> bool:
        return self.method in ("structured", "matrix", "dirichlet")

    def numbers(self, classes: int) -> int:
        return classes * classes if self.full else 2 * classes


def _near_temperature(part: float, **options: str) -> tuple[Member, ...]:
    return tuple(Member("structured", {"penalty": s, **options}, part * p) for s, p in credence.PRIOR.items())


# From simple to complex. Strengths of the penalty are members of their own: a mixture is steadier than a choice.
MEMBERS = (
    Member("temperature", {"steady": True}, credence.OF_TEMPERATURE),
    *_near_temperature(0.5),
    *_near_temperature(0.5, inputs="logits"),
    Member("structured-vector", {"penalty": 0.3}, 0.02),
    Member("vector", {"penalty": 0.3}, 0.03),
)
# Of many classes where a fit takes long.
FEWER = (
    Member("temperature", {"steady": True}, credence.OF_TEMPERATURE),
    Member("structured-vector", {"penalty": 3.0}, 0.2),
    Member("structured-vector", {"penalty": 0.1}, 0.1),
    Member("vector", {"penalty": 0.3}, 0.1),
    Member("structured", {"penalty": 10.0}, 0.2),
    Member("structured", {"penalty": 1.0}, 0.2),
)
# Of many classes with rows enough to pool them by the likelihood of held-out rows.
POOLED = (
    Member("temperature", {"steady": True}),
    Member("structured-vector", {"penalty": 0.03}),
    Member("spline", {"mixture": False}),
    Member("structured", {"penalty": 0.03}),
    Member("structured", {"penalty": 0.03, "inputs": "logits"}),
)
# Beside a mixture of few classes, whatever evidence says of it.
BESIDE = (Member("structured", {"penalty": 0.1}),)
_OF_BESIDE, _BESIDE_ROWS = 0.15, 20.0  # their share before any row is seen, and the pseudo-rows that hold it there
# Beside the others where most classes have few rows.
OF_RARE_CLASSES = Member("venn-abers", {}, 0.2)
_FEW_CLASSES = 100  # up to which it is left out of the pool


def choose(
    fit: Fit,
    logits: Floats,
    labels: Labels,
    weights: Weights | None,
    *,
    candidates: Sequence[str] | None = None,
    folds: int = FOLDS,
    seed: int = 0,
    **shared: Any,
) -> Calibrator:
    """`fit(method, logits, labels, weights=..., **shared)` as in the package's front door."""
    n, c = logits.shape
    if n < 2 * folds:
        raise ConfigError(f"auto needs at least {2 * folds} rows, here are {n}", fix="use --method temperature")
    heavy = n * c * c > _WORK
    many = not affordable(c, full=True)
    pooled = many and candidates is None and n >= _ROWS_A_CLASS * c
    usual = POOLED if pooled else FEWER if heavy else tuple(m for m in MEMBERS if not (many and "inputs" in m.options))
    if many and (not pooled or c > _FEW_CLASSES):
        usual = (*usual, OF_RARE_CLASSES)
    given = usual if candidates is None else tuple(Member(m) for m in candidates)
    members = [m for m in given if n * m.numbers(c) <= _TOO_LARGE]
    masks = folds_of(n, folds, seed, min(folds, folds_worth(n, heavy=heavy)))
    kept, found, failed = _held_out(fit, members, logits, labels, weights, masks, shared)
    if not kept:
        raise ConfigError("no candidate could be fitted: " + "; ".join(f"{k}: {v}" for k, v in failed.items()))
    if pooled:
        w = shares(found, np.ones(len(kept)), _PSEUDO_ROWS)
    else:
        w = _shares(kept, found, logits, labels, weights, _offset(shared, c))
        if not (many or shared or candidates is not None):
            kept, found, w = _with_weak(fit, kept, found, w, logits, labels, weights, masks)
    nll = found.mean()
    top = int(np.argmax(w))
    single = w[top] >= _NEARLY_ALL or bool(shared)  # a mixture inside a prior correction would not be one
    keep = [top] if single else [j for j, share in enumerate(w) if share >= _LEAST_SHARE]
    parts = [fit(kept[j].method, logits, labels, weights=weights, **kept[j].options, **shared) for j in keep]
    mix = w[keep] / w[keep].sum()
    whole = np.zeros(len(w))
    whole[keep] = mix
    taken = found.pooled(whole)
    uniform = 0.0 if shared else _uniform_share(taken, found, c)
    made = _mixed(parts, mix, uniform)
    if made.method != "mixture":
        why = f"its share of the best mixture is {100 * w[top]:.0f} % (cross-validated NLL {nll[top]:.4f})"
    else:
        taken = -np.log((1 - uniform) * np.exp(-taken) + uniform / c)
        said = ", ".join(f"{100 * share:.0f} % {kept[j].name}" for j, share in zip(keep, mix, strict=True))
        why = f"a mixture of {said}: cross-validated NLL {found.weights @ taken / found.weights.sum():.4f}"
        why += f"; {100 * uniform:.2g} % uniform against zeros" if uniform else ""
    account = {
        "chosen": made.method,
        "folds": len(masks),
        "why": why,
        "members": [
            {"method": kept[j].method, "options": kept[j].options, "share": float(share)}
            for j, share in zip(keep, mix, strict=True)
        ],
        "uniform": float(uniform),
        "methods": _table(kept, found, taken, w),
        "failed": failed,
        "few_rows": _few(kept, found),
    }
    return Calibrator(made.method, c, made.parameters, {**made.fit, "auto": account}, made.fitted_on)


def again(
    fit: Fit, chosen: Calibrator, logits: Floats, labels: Labels, weights: Weights | None, **shared: Any
) -> Calibrator:
    """What `choose` chose, on other rows: its members with their options fitted anew, their shares as they were.

    A file that does not say its members is chosen for anew.
    """
    account = chosen.fit.get("auto", {})
    if "members" not in account:
        return choose(fit, logits, labels, weights, **shared)
    members = account["members"]
    parts = [fit(m["method"], logits, labels, weights=weights, **m["options"], **shared) for m in members]
    return _mixed(parts, np.asarray([m["share"] for m in members]), account["uniform"])


def _mixed(parts: list[Calibrator], mix: NDArray[np.float64], uniform: float) -> Calibrator:
    """One map, or several in these shares of what the uniform distribution leaves."""
    first = parts[0]
    if len(parts) == 1 and not uniform:
        return first
    members, shares_of = [(p.method, dict(p.parameters)) for p in parts], mix * (1 - uniform)
    if uniform:
        said = {"temperature": 1.0, "weights": [0.0, 0.0, 1.0]}
        members, shares_of = [*members, ("ensemble-temperature", said)], np.append(shares_of, uniform)
    return Calibrator("mixture", first.classes, mixture(members, shares_of.tolist()), {}, first.fitted_on)


def _uniform_share(taken: NDArray[np.float64], found: HeldOut, classes: int) -> float:
    both = HeldOut(np.stack([taken, np.full(len(taken), np.log(classes))]), found.weights, found.rows)
    found_shares = shares(both, np.array([0.99, 0.01]))
    gained = found.weights @ (taken - both.pooled(found_shares))
    return float(found_shares[1]) if gained > _CLEAR else 0.0


def _shares(
    members: Sequence[Member],
    found: HeldOut,
    logits: Floats,
    labels: Labels,
    weights: Weights | None,
    offset: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """How much each is believed."""
    gains = -(found.losses @ found.weights) * len(labels) / len(found.rows)
    gains -= gains[0]
    evidence = gains.copy()
    if all(affordable(logits.shape[1], full=m.full) for m in members):
        near = [j for j, m in enumerate(members) if m.method in _NEAR and "penalty" in m.options]
        scaled = logits.astype(np.float64) / (steadied(logits, labels, weights, offset=offset) if near else 1.0)
        paths: dict[tuple[str, Any], Near] = {}
        for j in near:
            evidence[j] = _evidence(members[j], scaled, labels, weights, offset, paths)
    return credence.credences(np.array([m.prior for m in members]), gains, len(labels), evidence)


def _with_weak(
    fit: Fit,
    kept: list[Member],
    found: HeldOut,
    w: NDArray[np.float64],
    logits: Floats,
    labels: Labels,
    weights: Weights | None,
    masks: Sequence[NDArray[np.bool_]],
) -> tuple[list[Member], HeldOut, NDArray[np.float64]]:
    """A part of the mixture for a map under a weak penalty; it may have been given up as hopeless before."""
    fresh = [m for m in BESIDE if m not in kept]
    more, also, _ = _held_out(fit, fresh, logits, labels, weights, masks, {})
    if more:
        kept, w = [*kept, *more], np.append(w, np.zeros(len(more)))
        found = HeldOut(np.concatenate([found.losses, also.losses]), found.weights, found.rows)
    return kept, found, beside(found, w, [m in BESIDE for m in kept], _OF_BESIDE, _BESIDE_ROWS)


def _evidence(
    member: Member,
    scaled: NDArray[np.float64],
    labels: Labels,
    weights: Weights | None,
    offset: NDArray[np.float64] | None,
    paths: dict[tuple[str, Any], Near],
) -> float:
    """`scaled`: logits at their temperature. Each strength begins where the stronger one before it ended."""
    x = scaled if member.method == "vector" else near_inputs(scaled, member.options.get("inputs", "log-probabilities"))
    start, strength = paths.get(member.path), float(member.options["penalty"])
    found = fit_near(x, labels, weights, offset, strength, full=member.full, start=start, tolerance=1e-5)
    paths[member.path] = found
    return log_evidence(found, x, labels, weights, offset, full=member.full)


def _held_out(
    fit: Fit,
    members: Sequence[Member],
    logits: Floats,
    labels: Labels,
    weights: Weights | None,
    masks: Sequence[NDArray[np.bool_]],
    shared: dict[str, Any],
) -> tuple[list[Member], HeldOut, dict[str, str]]:
    n = len(labels)
    w = np.ones(n) if weights is None else weights * (n / weights.sum())
    offset = _offset(shared, logits.shape[1])
    shift = 0.0 if offset is None else -offset
    kept, losses, failed = [], [], {}
    gains: dict[tuple[str, Any], list[float]] = {}
    for member in members:
        parts = []
        if credence.hopeless(gains.get(member.path, [])):
            continue
        try:
            for test in masks:
                some = None if weights is None else weights[~test]
                made = fit(member.method, logits[~test], labels[~test], weights=some, **member.options, **shared)
                parts.append(label_losses(made.logits(logits[test]) - shift, labels[test]))
        except CalibrantError as error:
            failed[member.name] = error.what
            continue
        kept.append(member)
        losses.append(np.concatenate(parts))
        gained = float((losses[0] - losses[-1]).sum()) * n / len(losses[0])
        gains.setdefault(member.path, [0.0]).append(gained)
    rows = np.concatenate([np.flatnonzero(test) for test in masks])
    return kept, HeldOut(np.array(losses), w[rows], rows), failed


def _offset(shared: dict[str, Any], classes: int) -> NDArray[np.float64] | None:
    if not shared.get("strength"):
        return None
    return -float(shared["strength"]) * checked_ratio(shared["log_prior_ratio"], classes)


def _table(
    kept: Sequence[Member], found: HeldOut, taken: NDArray[np.float64], w: NDArray[np.float64]
) -> dict[str, dict[str, float | None]]:
    table = {}
    for member, loss, share in zip(kept, found.losses, w, strict=True):
        low, high = _interval(loss - taken, found.weights)
        nll_low, nll_high = _interval(loss, found.weights)
        table[member.name] = {
            "nll": _mean(loss, found.weights),
            "low": nll_low,
            "high": nll_high,
            "share": float(share),
            "minus_chosen": _mean(loss - taken, found.weights),
            "minus_chosen_low": low,
            "minus_chosen_high": high,
        }
    return table


def _few(kept: Sequence[Member], found: HeldOut) -> str | None:
    """Says so where the first candidate and the best of the others cannot be told apart, and could differ by much."""
    if len(kept) < 2:
        return None
    other = 1 + int(np.argmin(found.mean()[1:]))
    low, high = _interval(found.losses[other] - found.losses[0], found.weights)
    if low is None or high is None or not low < 0 < high or high - low < 0.01:
        return None
    return (
        f"{len(found.rows)} rows are too few to choose: {kept[other].name} minus {kept[0].name} may be anything from "
        f"{low:+.3f} to {high:+.3f} nats, so what was taken leans on what is simple"
    )


def _mean(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    return float(np.dot(weights, values) / weights.sum())


def _interval(values: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float | None, float | None]:
    mean = _mean(values, weights)
    effective = float(weights.sum() ** 2 / np.dot(weights, weights))
    variance = float((weights**2) @ (values - mean) ** 2) / float(weights.sum()) ** 2 * effective
    variance *= effective / max(effective - 1.0, 1.0)
    return mean_interval(mean, variance, effective)
