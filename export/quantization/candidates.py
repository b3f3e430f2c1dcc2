"""The settings that quantization tried, what each measured, and which one is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard
from calibrant.errors import CheckFailed
from calibrant.export.checks.measure import Cost, Quality
from calibrant.export.graph.fold import Array

Pixels = NDArray[Any]
# Largest relative difference of the error between optimisation off and on. A lone float convolution that is quantized
# again at load makes it 1.5; the other rounding of fused kernels up to .04.
LEVEL_GAP = 0.1
SLOWER = 0.9  # share of the fastest setting's speed that a more accurate one must keep
FLOAT = "float32"


@dataclass(frozen=True)
class Data:
    """Images as the graph takes them. Labels are -1 where unknown; without any, the float network is the teacher."""

    calibration: Pixels  # for activation ranges and the corrections: training images, no labels needed
    images: Pixels  # for the temperature and the table, each half measured with the temperature of the other
    labels: NDArray[np.int64] | None = None

    def halves(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        order = np.random.default_rng(0).permutation(len(self.images))
        return np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])


@dataclass(frozen=True)
class Candidate:
    """One setting: what stays float, what it measured."""

    name: str
    float_blocks: tuple[str, ...]
    logits: Array  # the network's own, on `Data.images`, after the bias correction
    weight: Array | None  # added to the classifier's weight, where the float network could teach it
    bias: Array  # added to its bias
    rmse: float  # of row-centred logits against the float network
    level_gap: float  # relative difference of that error between optimisation off and on
    agreement: float  # share of equal winners
    clear_agreement: float  # where the float margin exceeds 0.1
    megabytes: float
    cost: Cost
    temperature: float = 1.0  # factor found by the re-fit
    quality: Quality | None = None

    @property
    def stable(self) -> bool:
        return self.level_gap <= LEVEL_GAP


@dataclass(frozen=True)
class Result:
    card: ModelCard
    chosen: Candidate
    candidates: tuple[Candidate, ...]  # the float file first
    sensitivity: dict[str, float] = field(default_factory=dict)  # block: share of the error that it causes
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "chosen": self.chosen.name, "sensitivity": self.sensitivity, "warnings": list(self.warnings),
            "settings": [row(t, self.candidates[0]) for t in self.candidates],
        }  # fmt: skip


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """The least error of the logits among the stable settings that keep nine tenths of the fastest one's speed.

    Not the best agreement: of 600 images two settings differ in a few, and which ones is chance.
    """
    stable = [t for t in candidates if t.stable]
    if not stable:
        worst = max(candidates, key=lambda t: t.level_gap)
        raise CheckFailed(
            f"no setting survives onnxruntime's optimiser: the error of {worst.name} changes by "
            f"{100 * worst.level_gap:.0f} % between optimisation off and on",
            fix="keep whole blocks in float with --keep-float, or none",
        )
    fastest = min(t.cost.large for t in stable)
    return min((t for t in stable if t.cost.large * SLOWER <= fastest), key=lambda t: (t.rmse, t.cost.large))


def row(candidate: Candidate, base: Candidate) -> dict[str, Any]:
    """A setting as JSON."""
    measured = {} if candidate.quality is None else candidate.quality.to_dict()
    if candidate.quality is not None and base.quality is not None:
        measured["ece_in_float_interval"] = candidate.quality.ece_place(base.quality)
    return {
        "setting": candidate.name, **measured, "agreement": candidate.agreement,
        "agreement_margin_0.1": candidate.clear_agreement,
        "rmse": candidate.rmse, "level_gap": candidate.level_gap, "temperature_factor": candidate.temperature,
        "megabytes": candidate.megabytes, "speed_1": base.cost.one / max(candidate.cost.one, 1e-12),
        "speed_8": base.cost.large / max(candidate.cost.large, 1e-12),
    }  # fmt: skip
