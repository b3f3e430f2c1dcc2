"""The network in torch as it is deployed: the pixels' way in, and the one formula in its torch form.

p = softmax( cal( g(z) / tau ) - shift ),   shift = a log(pi_train / pi_target)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant.calibration.calibrators.base import Calibrator
from calibrant.errors import ModelError
from calibrant.export.config import Input
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.losses.shared.gauge import check_gauge, gauged


class Body(nn.Module):
    """Pixels to the network's own (logits, features), with the normalisation inside for uint8 NHWC input; rows as they
    are.

    Transposing the bytes before the cast costs nothing measurable; casting first costs a sixth of a small network's
    time. `contiguous` keeps the trace from carrying channels-last strides along as index arithmetic.
    """

    mul: Tensor
    add: Tensor

    def __init__(self, network: nn.Module, preprocessing: Preprocessing, input: Input = "uint8") -> None:
        super().__init__()
        self.network, self.input = network, input
        mean, std = (torch.tensor(v, dtype=torch.float64).view(1, 3, 1, 1) for v in _stats(preprocessing))
        self.register_buffer("mul", (1.0 / (255.0 * std)).float())
        self.register_buffer("add", (-mean / std).float())

    def forward(self, images: Tensor) -> Any:
        if self.input == "uint8":
            images = images.permute(0, 3, 1, 2).contiguous().float() * self.mul + self.add
        return self.network(images)

    def example(self, preprocessing: Preprocessing, batch: int, generator: torch.Generator | None = None) -> Tensor:
        """Random images, or rows, of the shape and type that the graph takes."""
        height, width = preprocessing.size
        if self.input == "rows":
            return torch.randn((batch, width), generator=generator)
        pixels = torch.randint(0, 256, (batch, height, width, 3), dtype=torch.uint8, generator=generator)
        return pixels if self.input == "uint8" else normalised(pixels, preprocessing)


class Outputs(NamedTuple):
    logits: Tensor
    features: Tensor | None


def split_outputs(result: Any, where: str) -> Outputs:
    """(logits, features) of what a network returned, or an error that says what it returned instead."""
    if isinstance(result, Tensor):
        result = (result, None)
    if not isinstance(result, (tuple, list)) or len(result) != 2 or not isinstance(result[0], Tensor):
        raise ModelError(f"returned {type(result).__name__}, expected logits or (logits, features)", where=where)
    logits, features = result
    if logits.ndim != 2:
        raise ModelError(f"its logits have shape {tuple(logits.shape)}, expected [N, C]", where=where)
    if features is not None and (not isinstance(features, Tensor) or features.ndim != 2):
        features = None
    return Outputs(logits.float(), features)


class Formula(nn.Module):
    """The one formula on a network's logits, in torch. Gives the deployed logits; softmax makes probabilities."""

    def __init__(
        self,
        classes: int,
        *,
        class_temperatures: Sequence[float] | NDArray[np.floating[Any]] | None = None,
        gauge: str = "none",
        calibrator: Calibrator | None = None,
        shift: NDArray[np.floating[Any]] | None = None,
    ) -> None:
        super().__init__()
        self.gauge = check_gauge(gauge)
        self.taus = None if class_temperatures is None else _double(class_temperatures)
        self.shift = torch.zeros(classes, dtype=torch.float64) if shift is None else _double(shift)
        self.calibrator = calibrator
        self.affine = None if calibrator is None else calibrator.as_affine()

    def forward(self, z: Tensor, features: Tensor | None = None) -> Tensor:
        z = gauged(z.double(), self.gauge)
        if self.taus is not None:
            z = z / self.taus
        if self.affine is not None:
            a, c = _double(self.affine.a), _double(self.affine.c)
            z = (z * a if a.ndim < 2 else z @ a.T) + c
        elif self.calibrator is not None:
            seen = None if features is None else features.detach().numpy()
            z = torch.from_numpy(np.array(self.calibrator.logits(z.detach().numpy(), seen), np.float64))
        return z - self.shift


def normalised(pixels: Tensor, preprocessing: Preprocessing) -> Tensor:
    return torch.from_numpy(preprocessing.normalise(pixels.numpy()))


def _stats(preprocessing: Preprocessing) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return preprocessing.mean, preprocessing.std


def _double(values: Any) -> Tensor:
    return torch.as_tensor(np.array(values, np.float64))
