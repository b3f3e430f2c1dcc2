"""A temperature beside a map of single probabilities: q = w softmax(z / T) + (1 - w) g(z), against zero probabilities.

A bin without a hit says 0, and one label in it costs log 1e12. w is chosen as in `pooling.py`: cross-validated
likelihood with twenty pseudo-rows, eighteen of which follow the temperature. With few rows the temperature speaks, with
many the map, and no probability is below w softmax(z / T).

Where a map may say 0 and n is below a hundred, a share n / 1000 of the pseudo-rows follows it, not a tenth: fifty rows
tell hardly anything of each class by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.estimation.pooling import FOLDS, folds_of, held_out, shares
from calibrant.calibration.calibrators.form import Parameters, numbers, positive
from calibrant.calibration.calibrators.steps import Affine, Pool, Step
from calibrant.calibration.calibrators.temperature import steadied
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.errors import ConfigError

Fitted = tuple[dict[str, Any], dict[str, Any]]
Plain = Callable[[Floats, Labels, Weights | None], dict[str, Any]]
_OF_THE_MAP = 0.1  # the map's part of the pseudo-rows
_A_WHOLE = 1000.0  # of one that may say 0, rows in proportion to these where that is less
_WORK = 1e5  # rows x classes: beyond, one fold


def anchored(
    plain: Plain,
    steps: Callable[[Parameters, int], tuple[Step, ...]],
    logits: Floats,
    labels: Labels,
    weights: Weights | None,
    *,
    seed: int = 0,
    zeros: bool = False,
) -> Fitted:
    """The parameters of `plain` with the temperature beside them; `steps` says how those numbers act.

    `zeros`: whether the map may say 0.
    """
    n, c = logits.shape

    def temperature(z: Floats, y: Labels, w: Weights | None) -> tuple[Step, ...]:
        return (_scale(steadied(z, y, w), c),)

    def map_(z: Floats, y: Labels, w: Weights | None) -> tuple[Step, ...]:
        return steps(plain(z, y, w), c)

    share, notes = 0.9, {}
    if n >= 2 * FOLDS:
        masks = folds_of(n, FOLDS, seed, 1 if n * c > _WORK else None)
        found = held_out((temperature, map_), logits, labels, weights, masks)
        if len(found.rows):
            share = float(shares(found, prior(n if weights is None else _effective(weights), zeros=zeros))[0])
            notes = {"cross_validated_nll": dict(zip(("temperature", "map"), found.mean().tolist(), strict=True))}
    beside = {"temperature": steadied(logits, labels, weights), "share": share}
    return {**plain(logits, labels, weights), "anchor": beside}, notes


def prior(rows: float, *, zeros: bool) -> NDArray[np.float64]:
    """What part of the pseudo-rows follows the temperature, and what part the map."""
    part = min(_OF_THE_MAP, rows / _A_WHOLE) if zeros else _OF_THE_MAP
    return np.array([1.0 - part, part])


def _effective(weights: Weights) -> float:
    return float(weights.sum() ** 2 / np.dot(weights, weights))


def check_anchor(p: Parameters) -> None:
    """Refuses what cannot stand beside a map; files of before have none."""
    anchor = p.get("anchor")
    if anchor is None:
        return
    if not isinstance(anchor, dict):
        raise ConfigError('parameter "anchor" must hold a temperature and a share')
    positive(anchor, "temperature", ())
    if not 0 <= float(numbers(anchor, "share", ())) <= 1:
        raise ConfigError('parameter "share" must be a share')


def beside(p: Parameters, classes: int, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    anchor = p.get("anchor")
    if not anchor:
        return steps
    share = float(anchor["share"])
    return (Pool(((_scale(float(anchor["temperature"]), classes),), steps), (share, 1.0 - share)),)


def _scale(temperature: float, classes: int) -> Affine:
    return Affine.scale(np.full(classes, 1.0 / temperature))
