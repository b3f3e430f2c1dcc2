"""The foreign file as it is, run on pictures: what the adopted one must say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.softmax import sigmoid, softmax
from calibrant.export.adoption.reading.input_side import ForeignInput
from calibrant.export.adoption.reading.values import run_rows
from calibrant.export.checks.parity import session
from calibrant.images.declared.declaration import Declared

Array = NDArray[np.float64]


def level_of(precision: str) -> str:
    """The optimisation that a file is compared under: onnxruntime quantizes a lone float layer of an int8 file again
    when it loads it, so two files that say the same differ there."""
    return "disabled" if precision == "int8" else "all"


@dataclass(frozen=True)
class Original:
    run: Any
    taken: ForeignInput
    output: str  # as the file names it
    kind: str  # of output_kind.KINDS
    classes: int
    independent: bool = False
    floor: float | None = None  # least probability, where logarithms of them stand in for logits

    @classmethod
    def open(
        cls,
        path: str | Path,
        taken: ForeignInput,
        output: str,
        kind: str,
        classes: int,
        *,
        precision: str = "float32",
        independent: bool = False,
        floor: float | None = None,
    ) -> Original:
        return cls(session(path, level=level_of(precision)), taken, output, kind, classes, independent, floor)

    def outputs(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The output for rows as the file takes them."""
        return run_rows(self.run, rows, [self.output], batch=self.taken.batch)[self.output]

    def answers(self, rows: NDArray[Any]) -> Array:
        """Probabilities [N, C] (for sigmoids one by one), or [N] winners where the file gives labels."""
        values = self.outputs(rows)
        if self.kind == "label":
            return np.asarray(values.reshape(len(values), -1)[:, 0], np.float64)
        if self.independent and self.kind == "logits":
            return sigmoid(np.asarray(values, np.float64).reshape(len(values), -1))
        p = as_probabilities(values, self.kind, self.classes)
        if self.floor is None:
            return p
        if self.independent:
            return np.clip(p, self.floor, 1 - self.floor)
        p = np.maximum(p, self.floor)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def moved(self, pixels: NDArray[Any], declared: Declared) -> float:
        """How far the least probability that stands for none moves the file's own answers, at most."""
        own = replace(self, floor=None).of_pixels(pixels, declared)
        return float(np.abs(own - self.of_pixels(pixels, declared)).max())

    def of_pixels(self, pixels: NDArray[Any], declared: Declared) -> Array:
        return self.answers(self.taken.feed(pixels, declared))


def as_probabilities(values: NDArray[Any], kind: str, classes: int) -> Array:
    """An output as probabilities of the classes; a single column is the second of two."""
    z = np.asarray(values, np.float64).reshape(len(values), -1)
    if kind == "margin":
        return softmax(z / 2)
    if kind == "percent":
        z, kind = z / 100, "probabilities"
    if z.shape[1] == 1 and classes == 2:
        p = z if kind in ("probabilities", "sigmoid") else sigmoid(z)
        return np.hstack([1 - p, p])
    if kind == "log-probabilities":
        return np.asarray(np.exp(z))
    return softmax(z) if kind == "logits" else z


def deployed(logits: Array, kind: str, *, independent: bool = False) -> Array:
    """The adopted file's logits as the original's output would have them."""
    return sigmoid(logits) if independent or kind == "sigmoid" else softmax(logits)
