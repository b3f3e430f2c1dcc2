"""What a calibration method is: one record, with how it is fitted, what its numbers must be, and its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.steps import Affine, Step
from calibrant.errors import ConfigError

Matrix = NDArray[np.float64]
Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Form:
    """`fit(logits, labels, weights, *, offset=None, options...)` gives (parameters, notes of the fit).

    A fit that names no `weights` takes none, and one that names no `offset` cannot be fitted inside a prior term.
    `check(parameters, classes)` refuses what is no such map; `steps(parameters, classes)` is the map.
    """

    method: str
    fit: Callable[..., tuple[dict[str, Any], dict[str, Any]]]
    check: Callable[[Parameters, int], None]
    steps: Callable[[Parameters, int], tuple[Step, ...]]
    reads_features: bool = False  # its fit takes `features=` (N, D), and so do its steps
    diagonal: bool = False  # one affine step on each logit by itself, so that the network's logits can be had back

    def affine(self, parameters: Parameters, classes: int) -> Affine | None:
        """The map where it is affine in the logits: it folds into a classifier."""
        steps = self.steps(parameters, classes)
        return steps[0] if len(steps) == 1 and isinstance(steps[0], Affine) else None


def numbers(parameters: Parameters, key: str, shape: tuple[int, ...]) -> Matrix:
    """A parameter as an array of the shape, or a ConfigError that names it."""
    try:
        array = np.asarray(parameters[key], np.float64)
    except KeyError:
        raise ConfigError(f'parameter "{key}" is missing') from None
    except (TypeError, ValueError):
        raise ConfigError(f'parameter "{key}" is not an array of numbers') from None
    if array.shape != shape or not np.isfinite(array).all():
        raise ConfigError(f'parameter "{key}" has shape {array.shape}, expected {shape} finite numbers')
    return array


def positive(parameters: Parameters, key: str, shape: tuple[int, ...]) -> Matrix:
    array = numbers(parameters, key, shape)
    if (array <= 0).any():
        raise ConfigError(f'parameter "{key}" must be positive')
    return array
