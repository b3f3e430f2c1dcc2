"""What a fit should not be believed without: rounded probabilities, and logits that look like probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.foreign.kinds import Rounded
from calibrant.artifacts.foreign.precision import EXACT_FLOOR
from calibrant.calibration.calibrators.temperature import fit_temperature

_SUSPICIOUS = 0.3  # a temperature below it, with confidence below accuracy before


def temperature_range(logits: NDArray[Any], labels: NDArray[np.int64], rounded: Rounded) -> tuple[float, float]:
    """T with zeros at half the resolution, and at nearly nothing: which of them it is the file does not tell."""
    z = np.asarray(logits, np.float64)
    lowest = np.where(z <= np.log(rounded.floor) + 1e-5, np.log(EXACT_FLOOR), z)
    found = [float(fit_temperature(values, labels)[0]["temperature"]) for values in (z, lowest)]
    return min(found), max(found)


def rounding_note(logits: NDArray[Any], labels: NDArray[np.int64], rounded: Rounded) -> str:
    low, high = temperature_range(logits, labels, rounded)
    return (
        f"T {low:.2f}-{high:.2f}: {100 * rounded.zeros:.0f} % of the probabilities were written as 0, which hides it; "
        "store logits or 8 digits, or fit a map of the top probability (--method isotonic or histogram)"
    )


def sharpening_note(temperature: float | None, confidence: float, accuracy: float) -> str | None:
    """Probabilities stored as logits give a temperature far below 1 from confidences far too low."""
    if temperature is None or temperature >= _SUSPICIOUS or confidence >= accuracy:
        return None
    return (
        f"T = {temperature:.3f} sharpens as much as probabilities stored as logits need; if they are such, "
        "say --kind probabilities"
    )
