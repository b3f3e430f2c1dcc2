"""Prediction sets from the conformal thresholds stored in a deployed file.

The file holds, for each error rate alpha, what `calibrant calibrate --conformal` fitted: a set is every class k whose
score s(x, k) is at most the threshold, and holds the label with probability at least 1 - alpha over rows like those
that it was fitted on. With p sorted from high to low and r_k the rank from 1:

    lac    1 - p_k                                                        (Sadinle, Lei and Wasserman 2019)
    aps    sum of p above k                                               (Romano, Sesia and Candes 2020)
    raps   aps + penalty max(0, r_k - rank)                               (Angelopoulos et al. 2021)

The guarantee is about the probabilities that the thresholds were fitted on, so the sets are always computed from those:
the file's own, whatever the request's knobs. Differs: the randomised forms are answered without chance (u = 0), and the
label of the answer is always a member; both can only add coverage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard
from calibrant.errors import ConfigError, FormatError

Array = NDArray[np.float64]


def blocks(card: ModelCard) -> Mapping[str, Any]:
    """Threshold blocks by alpha: the file's own, else those that its calibrator brought along."""
    return card.conformal or (card.calibrator or {}).get("conformal") or {}


def fitted_shift(card: ModelCard) -> Array | None:
    """What the thresholds' probabilities subtract from the calibrated logits; None where they are the file's own.

    Thresholds that came with the calibrator were fitted where it was: with the prior term of its fit, mostly none.
    """
    calibrator = card.calibrator or {}
    own = calibrator.get("conformal")
    if not own or (card.conformal and dict(card.conformal) != dict(own)):
        return None
    fit = calibrator.get("fitted_on") or {}
    ratio = fit.get("log_prior_ratio")
    if ratio is None or not fit.get("strength"):
        return np.zeros(len(card.classes))
    return float(fit["strength"]) * np.asarray(ratio, np.float64)


def coverages(conformal: Mapping[str, Any] | None) -> tuple[float, ...]:
    """What coverage may be asked for."""
    return tuple(sorted(round(1.0 - float(alpha), 10) for alpha in conformal or ()))


def thresholds(card: ModelCard, coverage: float) -> Mapping[str, Any]:
    """The block for this coverage, or what may be asked for instead."""
    known = blocks(card)
    if not known:
        raise ConfigError(
            "the file holds no conformal thresholds, so there are no prediction sets",
            where="coverage", fix="calibrate with --conformal 0.1 and export again, or leave coverage out",
        )  # fmt: skip
    return _block(known, coverage)


def prediction_sets(card: ModelCard, probabilities: NDArray[np.floating[Any]], coverage: float) -> NDArray[np.bool_]:
    """(N, C) membership, from the probabilities that the thresholds were fitted on."""
    block = thresholds(card, coverage)
    try:
        limit = _limit(block)
        scores = _scores(_sharpened(np.asarray(probabilities, np.float64), float(block.get("temperature", 1.0))), block)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"damaged conformal block ({error!r})", fix="export again") from None
    members: NDArray[np.bool_] = scores <= limit + 1e-7  # probabilities are float32
    return members


def _block(known: Mapping[str, Any], coverage: float) -> Mapping[str, Any]:
    for alpha, block in known.items():
        if abs((1.0 - float(alpha)) - coverage) < 1e-9:
            return dict(block)
    names = ", ".join(f"{c:g}" for c in coverages(known))
    raise ConfigError(f"the file has no threshold for {coverage:g}", where="coverage", fix=f"it holds: {names}")


def _limit(block: Mapping[str, Any]) -> Array:
    """One threshold, or one a class; null stands for infinity: too few rows, every class is in."""
    limits = block.get("class_thresholds") or [block["threshold"]]
    return np.array([np.inf if t is None else float(t) for t in limits])


def _scores(p: Array, block: Mapping[str, Any]) -> Array:
    kind = block["kind"]
    if kind == "lac":
        return 1.0 - p
    if kind not in ("aps", "raps"):
        raise FormatError(f'conformal sets of kind "{kind}" are not known to this version', fix="update calibrant")
    order = np.argsort(-p, axis=1, kind="stable")
    falling = np.take_along_axis(p, order, axis=1)
    ordered = np.cumsum(falling, axis=1) - falling
    if kind == "raps":
        ordered = ordered + float(block["penalty"]) * np.maximum(np.arange(1, p.shape[1] + 1) - int(block["rank"]), 0)
    scores = np.empty_like(ordered)
    np.put_along_axis(scores, order, ordered, axis=1)
    return scores


def _sharpened(p: Array, temperature: float) -> Array:
    """The set's own temperature, on top of the calibrated probabilities."""
    if temperature == 1.0:
        return p
    logits = np.log(np.maximum(p, 1e-300)) / temperature
    powered = np.exp(logits - logits.max(axis=1, keepdims=True))
    normalised: Array = powered / powered.sum(axis=1, keepdims=True)
    return normalised
