"""The reference is the one formula behind the caller's network, which stays as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from calibrant.artifacts.model_card import Prior
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration import Calibrator
from calibrant.export.graph.reference import TorchReference, prepare
from calibrant.export.graph.wrapper import Body

from ..conftest import PREPROCESSING, TinyNet, pixels


def test_the_deployed_logits_are_z_over_tau_through_the_calibrator_minus_the_shift(
    tiny: nn.Module, deployed: Path
) -> None:
    train = (0.4, 0.3, 0.1, 0.1, 0.1)
    card = replace(
        OnnxFile.open(deployed).card(), class_temperatures=(1.0, 2.0, 1.0, 1.0, 0.5), prior=Prior(train, None, 0.5, 1.0)
    )
    images = pixels(20)
    with torch.no_grad():
        z = tiny(torch.from_numpy(PREPROCESSING.normalise(images))).numpy().astype(np.float64)
    reference = TorchReference(
        Body(tiny, PREPROCESSING).eval(), 5, card, Calibrator("temperature", 5, {"temperature": 4.0})
    )
    found = reference(images)
    shift = np.log(np.array(train) * 5)  # of strength 1 to a uniform prior
    centred = found.logits - (z / [1, 2, 1, 1, 0.5] / 4 - shift)
    np.testing.assert_allclose(np.ptp(centred, axis=1), 0, atol=1e-5)
    assert found.steady.all()
    assert not found.bends


def test_a_map_that_jumps_says_where_it_cannot_be_compared(tiny: nn.Module, deployed: Path) -> None:
    """A histogram of one edge: rows within float32 rounding of it are not steady, others are."""
    card = OnnxFile.open(deployed).card()
    body = Body(tiny, PREPROCESSING).eval()
    images = pixels(8)
    plain = TorchReference(body, 5, card, None).network_logits(images)
    p = np.exp(plain) / np.exp(plain).sum(axis=1, keepdims=True)
    edge = float(p[3, 0])  # the fourth image stands on it
    bins = {"edges": [[0.0, edge, 1.0]] * 5, "values": [[0.25, 0.75]] * 5}
    found = TorchReference(body, 5, card, Calibrator("histogram", 5, bins))(images)
    assert found.bends
    assert not found.steady[3]


def test_the_caller_keeps_a_network_in_training() -> None:
    network = TinyNet().train().double()
    ready = prepare(network)
    assert network.training
    assert network.head.weight.dtype == torch.float64
    assert network.head.weight.requires_grad
    assert not ready.training
    assert all(p.dtype == torch.float32 and not p.requires_grad for p in ready.parameters())
