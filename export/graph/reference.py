"""What the deployed file must say: the network in torch, ready to be traced, and the formula behind it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from calibrant.artifacts.model_card import ModelCard
from calibrant.calibration.calibrators.base import Calibrator
from calibrant.export.checks.parity import Expected, steady_rows
from calibrant.export.graph.wrapper import Body, Formula, split_outputs
from calibrant.train.model.feature_model import FeatureModel
from calibrant.train.vit.deploy import for_export


def prepare(model: nn.Module) -> nn.Module:
    """The network to trace, in evaluation mode; the caller's module is left as it is."""
    network = copy.deepcopy(model).eval()
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    return network.float().cpu()


def lean(network: nn.Module) -> nn.Module:
    """The network as it is traced: vision transformers get a rewritten twin without the training machinery."""
    if isinstance(network, FeatureModel):
        twin = copy.copy(network)
        twin._modules = dict(network._modules)
        twin.network = for_export(network.network)
        return twin
    return for_export(network)


class TorchReference:
    """The deployed logits by torch, in float64 behind the network: what the file is compared with."""

    def __init__(self, body: Body, classes: int, card: ModelCard, calibrator: Calibrator | None) -> None:
        self.body = body
        self.bends = calibrator is not None and calibrator.as_affine() is None
        self.formula = Formula(
            classes,
            class_temperatures=card.class_temperatures,
            gauge=card.gauge,
            calibrator=calibrator,
            shift=card.prior.shift(),
        )

    def __call__(self, images: NDArray[Any]) -> Expected:
        z, features = self._network(images)

        def deployed(logits: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.asarray(self.formula(torch.from_numpy(logits), features).numpy())

        steady = steady_rows(deployed, z) if self.bends else np.ones(len(z), bool)
        return Expected(deployed(z), steady, self.bends)

    def network_logits(self, images: NDArray[Any]) -> NDArray[np.float64]:
        return self._network(images)[0]

    def _network(self, images: NDArray[Any]) -> tuple[NDArray[np.float64], torch.Tensor | None]:
        """Its logits, and its features where it gives them."""
        rows, seen = [], []
        with torch.inference_mode():
            for start in range(0, len(images), 16):
                out = split_outputs(self.body(torch.from_numpy(np.array(images[start : start + 16]))), "the network")
                rows.append(out.logits.double().numpy())
                if out.features is not None:
                    seen.append(out.features)
        return np.concatenate(rows), torch.cat(seen) if seen else None
