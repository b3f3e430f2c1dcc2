"""The one formula in numpy, in torch and in the graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from calibrant.artifacts.model_card import ModelCard, Prior
from calibrant.calibration import Calibrator
from calibrant.calibration.adjustment import adjusted_probabilities
from calibrant.export.checks.parity import session
from calibrant.export.graph.wrapper import Formula
from calibrant.shares import log_prior_ratio

from .conftest import CLASSES, PREPROCESSING, pixels

C = len(CLASSES)
IMAGES = pixels(32, seed=3)


Variant = Callable[..., tuple[Path, ModelCard]]


def run(path: Path, **inputs: NDArray[Any]) -> dict[str, NDArray[np.float32]]:
    model = session(path)
    names = [o.name for o in model.get_outputs()]
    return dict(zip(names, model.run(names, {"images": IMAGES, **inputs}), strict=True))


def raw_logits(tiny: nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        return tiny(torch.from_numpy(PREPROCESSING.normalise(IMAGES)))


def temperature(value: float) -> Calibrator:
    return Calibrator("temperature", C, {"temperature": value})


positive = st.floats(0.2, 5.0)
shares = st.lists(st.floats(0.01, 1.0), min_size=C, max_size=C).map(lambda v: (np.array(v) / sum(v)).tolist())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(
    taus=st.lists(positive, min_size=C, max_size=C), t=positive, train=shares, target=st.none() | shares,
    strength=st.floats(-1.0, 2.0),
)  # fmt: skip
def test_numpy_torch_and_graph_agree(
    variant: Variant, tiny: nn.Module,
    taus: list[float], t: float, train: list[float], target: list[float] | None, strength: float,
) -> None:  # fmt: skip
    prior = Prior(tuple(train), None if target is None else tuple(target), 0.0, strength)
    calibrator = temperature(t)
    path, _ = variant(class_temperatures=tuple(taus), calibrator=calibrator, prior=prior)
    graph = run(path)
    z = raw_logits(tiny)
    numpy_twin = adjusted_probabilities(
        z.numpy(), class_temperatures=taus, calibrator=calibrator, log_prior_ratio=log_prior_ratio(train, target),
        strength=strength,
    )  # fmt: skip
    torch_twin = Formula(C, class_temperatures=taus, calibrator=calibrator, shift=prior.shift())(z).softmax(1).numpy()
    np.testing.assert_allclose(torch_twin, numpy_twin, atol=1e-9)
    # float32 in the graph: the rounding grows with the size of the logits, up to 15 / tau_min / T here
    scale = max(1.0, float(np.abs(graph["logits"]).max()) / 30)
    np.testing.assert_allclose(graph["probabilities"], numpy_twin, atol=1e-5 * scale)


def test_formula_by_hand_on_two_classes() -> None:
    # z = (2, 0), tau = (2, 1), T = 0.5: u = (2, 0); pi = (0.8, 0.2), a = 1, uniform target: minus log(1.6), log(0.4)
    formula = Formula(2, class_temperatures=[2, 1], calibrator=temperature_of_two(0.5),
                      shift=Prior((0.8, 0.2), None, 0.0, 1.0).shift())  # fmt: skip
    p = formula(torch.tensor([[2.0, 0.0]])).softmax(1).numpy()
    odds = np.exp(2.0) * (0.2 / 0.8)
    np.testing.assert_allclose(p, [[odds / (1 + odds), 1 / (1 + odds)]], atol=1e-12)


def temperature_of_two(value: float) -> Calibrator:
    return Calibrator("temperature", 2, {"temperature": value})


def test_prior_shift_is_bayes_rule() -> None:
    # if softmax(z) is p(y|x) under pi_train, then the shifted one is p(y|x) under pi_target
    rng = np.random.default_rng(0)
    likelihood, train, target = rng.random((6, C)), rng.dirichlet(np.ones(C)), rng.dirichlet(np.ones(C))
    z = np.log(likelihood * train)
    shift = Prior(tuple(train), tuple(target), 0.0, 1.0).shift()
    assert shift is not None
    p = np.exp(z - shift)
    expected = likelihood * target
    np.testing.assert_allclose(p / p.sum(1, keepdims=True), expected / expected.sum(1, keepdims=True), atol=1e-12)


def test_absorbed_prior_is_not_corrected_twice() -> None:
    # balanced softmax learns log(likelihood) + const: with total strength 1 and a target the rest is the target alone
    rng = np.random.default_rng(1)
    likelihood, train, target = rng.random((6, C)), rng.dirichlet(np.ones(C)), rng.dirichlet(np.ones(C))
    shift = Prior(tuple(train), tuple(target), absorbed=1.0, applied=0.0).shift()
    assert shift is not None
    p = likelihood * np.exp(-shift)
    expected = likelihood * target
    np.testing.assert_allclose(p / p.sum(1, keepdims=True), expected / expected.sum(1, keepdims=True), atol=1e-12)
    assert Prior(tuple(train), None, absorbed=1.0, applied=0.0).shift() is None


@pytest.mark.parametrize("gauge", ["none", "mean", "max", "logsoftmax"])
def test_every_gauge_is_what_the_loss_saw(variant: Variant, tiny: nn.Module, gauge: str) -> None:
    taus = np.array([0.5, 0.8, 1.0, 1.5, 2.0])
    z = raw_logits(tiny).double().numpy()
    g = {
        "none": z,
        "mean": z - z.mean(1, keepdims=True),
        "max": z - z.max(1, keepdims=True),
        "logsoftmax": z - np.log(np.exp(z).sum(1, keepdims=True)),
    }[gauge]
    path, _ = variant(class_temperatures=tuple(taus.tolist()), gauge=gauge)
    np.testing.assert_allclose(run(path)["logits"], g / taus, atol=5e-5)
    np.testing.assert_allclose(Formula(C, class_temperatures=taus, gauge=gauge)(torch.from_numpy(z)), g / taus)
