"""What the numbers of an output are: logits, probabilities, their logarithms, percent, sigmoids or labels.

Neither structure nor numbers decide alone: an operator may be unknown, and an untrained network's logits may look like
probabilities. They must agree, or a person says which it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.softmax import FLOOR, log_sum_exp
from calibrant.errors import ConfigError, ModelError, did_you_mean
from calibrant.export.adoption.reading.ending import CLOSE, Ending

KINDS = ("logits", "log-probabilities", "probabilities", "percent", "sigmoid", "label")
# Largest error of a row's sum: float32 as GPUs add it up, half precision, and what quantizing a softmax leaves.
SUMS = {"float32": 1e-5, "float16": 2e-3, "int8": 0.1}


def kind_of_numbers(values: NDArray[Any], precision: str) -> str:
    """The kind that all rows of [N, C] are."""
    if values.dtype.kind in "iuSUOb":
        return "label"
    z, allowed = np.asarray(values, np.float64).reshape(len(values), -1), SUMS[precision]
    if not np.isfinite(z).all():
        raise ModelError("gives NaN or infinity on pictures", fix="look at its preprocessing, and run it in float32")
    sums, inside = z.sum(1), bool(np.all(z >= 0) and np.all(z <= 1 + allowed))
    if inside and np.all(np.abs(sums - 1) <= allowed):
        return "probabilities"
    if inside:
        return "sigmoid"
    if np.all(z >= 0) and np.all(np.abs(sums - 100) <= 100 * allowed):
        return "percent"
    if np.all(z <= allowed) and np.all(np.abs(log_sum_exp(z)) <= allowed):
        return "log-probabilities"
    return "logits"


def describe(values: NDArray[Any]) -> str:
    """Range and row sums, for the sentence that names a contradiction."""
    z = np.asarray(values, np.float64).reshape(len(values), -1)
    return f"values {z.min():.3g} .. {z.max():.3g}, row sums {z.sum(1).min():.4g} .. {z.sum(1).max():.4g}"


def agreed(output: str, ending: Ending, values: NDArray[Any], precision: str) -> str:
    """The kind of an output whose structure and numbers say the same; else both are named."""
    if ending.chosen:
        return "label"
    numbers = kind_of_numbers(values, precision)
    if numbers == ending.kind or (ending.kind == "sigmoid" and numbers == "probabilities"):
        return ending.kind
    # exp of logarithms in the hundreds: rows of a softmax by hand miss 1 by more than a softmax's
    if ending.kind == "probabilities" and numbers == "sigmoid" and _near_one(values):
        return ending.kind
    # sigmoid is what numbers in [0, 1] are called: logits behind a ReLU may lie there
    if ending.kind == "logits" and numbers == "sigmoid" and ending.known:
        return "logits"
    raise ModelError(
        f'output "{output}": its structure says {ending.kind} ({ending.said}), its numbers say {numbers} '
        f"({describe(values)})",
        fix="say which with --output-kind, one of " + ", ".join(KINDS[:-1]),
    )


def _near_one(values: NDArray[Any]) -> bool:
    sums = np.asarray(values, np.float64).reshape(len(values), -1).sum(1)
    return bool(np.all(np.abs(sums - 1) < CLOSE))


def check_kind(kind: str | None) -> None:
    if kind is not None and kind not in KINDS[:-1]:
        raise ConfigError(f'unknown output kind "{kind}"', where="--output-kind", fix=did_you_mean(kind, KINDS[:-1]))


def floor_of(p: NDArray[Any]) -> float:
    """The least probability that its logarithm is taken of: half of what the values are counted in, where some are 0.

    A forest of 50 trees votes in fiftieths: a class without a vote has less than one, not none.
    """
    values = np.unique(np.asarray(p, np.float64))
    if values[0] > 0 or len(values) < 2:
        return FLOOR
    return max(float(np.diff(values).min()) / 2, FLOOR)
