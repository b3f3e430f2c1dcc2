"""Which method, or which mixture of them: by cross-validated NLL, and by evidence where that can be computed.

Every row is predicted by maps that were fitted on other rows (five folds; fewer once 2,000 rows have been held out,
one where a fit takes seconds). The share of each candidate in a mixture of probabilities begins as how much it is
believed (`credence.py`): half of its log-evidence and up to half of what it gains in cross-validation, from a prior
that gives a fifth to the temperature. A weaker penalty is tried while the one before it is not ten nats behind the
best. A full map under a weak penalty gets a tenth whatever evidence says of it: where classes are confused it gains
more than evidence believes of few rows. Then all shares move to where held-out rows are likeliest, seven pseudo-rows
holding them (`pooling.py`): few rows leave them nearly as they are believed, a thousand decide alone. A mixture is
often better than its best member, which evidence, made to find one map, does not see.

Many classes (above thirty, evidence takes too long) with five rows a class: shares are those of a pool of five members,
three pseudo-rows shared alike. Weak penalties win there, and members that differ mend each other: on simulated tails
and networks the pool mostly beats its best member. Beyond a hundred classes Venn-Abers is one more of them: it guesses
well of classes with hardly a row. (At a hundred classes with many rows it would double the time.) With fewer rows a
class it has a fifth, in the place of the weak map, and the others share the rest by credence.

A small share may go to the uniform distribution, against zeros that no map of the logits takes away: the share that
maximises the cross-validated likelihood with twenty pseudo-rows, one in a hundred of them uniform, where it brings more
than one nat in their sum.

A mixture of maps that disagree is less sure than it could be, even where each of them is right. So it gets a
temperature of at most 1, fitted to what held-out rows got from it, with log T normal around 0 and a deviation of .1,
less where not all rows were held out.

Few rows so give a mixture that leans on what is simple, many a single map. Members below two hundredths are left out,
and one above .95 is taken by itself. For each member the mean loss and its paired difference to what was taken get 95 %
intervals over the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.adjustment import checked_ratio
from calibrant.calibration.calibrators.base import Calibrator
from calibrant.calibration.calibrators.estimation import credence
from calibrant.calibration.calibrators.estimation.candidates import Member, candidates_for
from calibrant.calibration.calibrators.estimation.comparison import table_of, too_few
from calibrant.calibration.calibrators.estimation.evidence import affordable, log_evidence
from calibrant.calibration.calibrators.estimation.near import Near, fit_near
from calibrant.calibration.calibrators.estimation.pooling import (
    FOLDS,
    HeldOut,
    folds_of,
    folds_worth,
    sampling_step,
    shares,
)
from calibrant.calibration.calibrators.mixture import mixture
from calibrant.calibration.calibrators.structured import near_inputs
from calibrant.calibration.calibrators.temperature import steadied
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.calibration.softmax import log_softmax
from calibrant.errors import CalibrantError, ConfigError

Fit = Callable[..., Calibrator]
_LEAST_SHARE, _NEARLY_ALL = 0.02, 0.95
_PSEUDO_ROWS, _OF_POOL = 7.0, 3.0  # that hold the shares where they are believed; those of a pool, alike
_CLEAR = 1.0  # nats that a uniform share has to bring in the sum of the rows
_TOO_LARGE = 1.2e9
_NEAR = ("structured-vector", "vector", "structured")


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
    known = candidates_for(n, c, single=bool(shared))
    given = known.members if candidates is None else tuple(Member(m) for m in candidates)
    members = [m for m in given if n * m.numbers(c) <= _TOO_LARGE]
    masks = folds_of(n, folds, seed, min(folds, folds_worth(n, heavy=known.heavy)))
    kept, found, failed = _held_out(fit, members, logits, labels, weights, masks, shared)
    if not kept:
        raise ConfigError("no candidate could be fitted: " + "; ".join(f"{k}: {v}" for k, v in failed.items()))
    if known.pooled and candidates is None:
        w = shares(found, np.ones(len(kept)), _OF_POOL)
    else:
        w = _believed(kept, found, logits, labels, weights, _offset(shared, c))
        if known.beside is not None and candidates is None:
            if known.beside not in kept:  # or it was given up as hopeless
                more, also, failed_too = _held_out(fit, [known.beside], logits, labels, weights, masks, shared)
                kept, found, failed = [*kept, *more], found.and_also(also), failed | failed_too
                w = np.append(w, np.zeros(len(more)))
            w = _moved(found, w, [m == known.beside for m in kept], known.part)
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
    mixed = len(parts) > 1 or uniform > 0
    temperature = found.temperature(whole, uniform, labels, weighted=weights is not None) if mixed else 1.0
    made = _mixed(parts, mix, uniform, temperature)
    if made.method != "mixture":
        why = f"its share of the best mixture is {100 * w[top]:.0f} % (cross-validated NLL {nll[top]:.4f})"
    else:
        taken = -np.log((1 - uniform) * np.exp(-taken) + uniform / c)
        said = ", ".join(f"{100 * share:.0f} % {kept[j].name}" for j, share in zip(keep, mix, strict=True))
        why = f"a mixture of {said}: cross-validated NLL {found.weights @ taken / found.weights.sum():.4f}"
        why += f"; {100 * uniform:.2g} % uniform against zeros" if uniform else ""
        if temperature < 1:
            why += f"; then a temperature of {temperature:.3g}, since a mixture is less sure than it could be"
    account = {
        "chosen": made.method,
        "folds": len(masks),
        "why": why,
        "members": [
            {"method": kept[j].method, "options": kept[j].options, "share": float(share)}
            for j, share in zip(keep, mix, strict=True)
        ],
        "uniform": float(uniform),
        "temperature": temperature,
        "methods": table_of(kept, found, taken, w),
        "failed": failed,
        "few_rows": too_few(kept, found),
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
    return _mixed(parts, np.asarray([m["share"] for m in members]), account["uniform"], account.get("temperature", 1.0))


def _mixed(parts: list[Calibrator], mix: NDArray[np.float64], uniform: float, temperature: float) -> Calibrator:
    """One map, or several in these shares of what the uniform distribution leaves, at a temperature."""
    first = parts[0]
    if len(parts) == 1 and not uniform:
        return first
    members, shares_of = [(p.method, dict(p.parameters)) for p in parts], mix * (1 - uniform)
    if uniform:
        said = {"temperature": 1.0, "weights": [0.0, 0.0, 1.0]}
        members, shares_of = [*members, ("ensemble-temperature", said)], np.append(shares_of, uniform)
    return Calibrator("mixture", first.classes, mixture(members, shares_of.tolist(), temperature), {}, first.fitted_on)


def _uniform_share(taken: NDArray[np.float64], found: HeldOut, classes: int) -> float:
    both = HeldOut(np.stack([taken, np.full(len(taken), np.log(classes))]), found.weights, found.rows)
    found_shares = shares(both, np.array([0.99, 0.01]))
    gained = found.weights @ (taken - both.pooled(found_shares))
    return float(found_shares[1]) if gained > _CLEAR else 0.0


def _believed(
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


def _moved(found: HeldOut, believed: NDArray[np.float64], beside: Sequence[bool], part: float) -> NDArray[np.float64]:
    """The shares that held-out rows ask for, from those that are believed and a part for the one beside them."""
    which = np.asarray(beside)
    return shares(found, np.where(which, part, 0.0) + believed * (1 - part * which.any()), _PSEUDO_ROWS)


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
    kept, losses, failed, wide = [], [], {}, []
    step = sampling_step(int(sum(test.sum() for test in masks)))
    gains: dict[tuple[str, Any], list[float]] = {}
    for member in members:
        parts, sampled, begin = [], [], 0
        if credence.hopeless(gains.get(member.path, [])):
            continue
        try:
            for test in masks:
                some = None if weights is None else weights[~test]
                made = fit(member.method, logits[~test], labels[~test], weights=some, **member.options, **shared)
                log_p = log_softmax(made.logits(logits[test]) - shift)
                parts.append(-log_p[np.arange(len(log_p)), labels[test]])
                sampled.append(log_p[-begin % step :: step].astype(np.float32))
                begin += len(log_p)
        except CalibrantError as error:
            failed[member.name] = error.what
            continue
        kept.append(member)
        losses.append(np.concatenate(parts))
        wide.append(np.concatenate(sampled))
        gained = float((losses[0] - losses[-1]).sum()) * n / len(losses[0])
        gains.setdefault(member.path, [0.0]).append(gained)
    rows = np.concatenate([np.flatnonzero(test) for test in masks])
    return kept, HeldOut(np.array(losses), w[rows], rows, tuple(wide), step), failed


def _offset(shared: dict[str, Any], classes: int) -> NDArray[np.float64] | None:
    if not shared.get("strength"):
        return None
    return -float(shared["strength"]) * checked_ratio(shared["log_prior_ratio"], classes)
