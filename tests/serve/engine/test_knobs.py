from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant.artifacts.model_card import ModelCard, Prior
from calibrant.calibration import fit
from calibrant.calibration.softmax import softmax
from calibrant.errors import CalibrantError, ConfigError, DataError
from calibrant.images.preprocessing import Preprocessing
from calibrant.serve.engine.deployed_formula import DeployedFormula
from calibrant.serve.engine.knobs import Knobs


def test_two_classes_by_hand(tiny: ModuleType) -> None:
    """z = (ln 4, 0), T = 2: p = (2/3, 1/3). Train (0.8, 0.2), a = 1, uniform: odds 2 / 4, so p = (1/3, 2/3)."""
    block = tiny.card(classes=("a", "b"), prior=Prior(train=(0.8, 0.2), applied=0.0))
    formula = DeployedFormula.of(block)
    logits = np.array([[np.log(4) / 2, 0.0]])
    np.testing.assert_allclose(softmax(formula.logits(logits, Knobs())), [[2 / 3, 1 / 3]], atol=1e-12)
    np.testing.assert_allclose(
        softmax(formula.logits(logits, Knobs(adjust_strength=1.0))), [[1 / 3, 2 / 3]], atol=1e-12
    )
    # T = 1: p = (4/5, 1/5); to a prior of (0.2, 0.8): odds 4 * (0.2 / 0.8) / (0.8 / 0.2) = 1/4
    knobs = Knobs(temperature=1.0, target_prior=(0.2, 0.8))
    np.testing.assert_allclose(softmax(formula.logits(logits, knobs)), [[0.2, 0.8]], atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_undoing_and_redoing_gives_the_file_that_would_have_been_exported(seed: int) -> None:
    """From a file with (T, a, s, prior) to any other temperature, strength and prior, to float32's error."""
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(2, 12))
    z = rng.normal(0, 4, (5, classes))
    train, target, other = (rng.dirichlet(np.full(classes, 2.0)) + 1e-3 for _ in range(3))
    train, target, other = (p / p.sum() for p in (train, target, other))
    fitted, t = rng.uniform(0.2, 5, 2)
    total, absorbed, a = rng.uniform(-1, 2, 3)
    taken = absorbed * np.log(train * classes)
    file_term = total * np.log(train / target) - taken
    block = ModelCard(
        tuple(map(str, range(classes))), Preprocessing((8, 8), 8),
        calibrator={"method": "temperature", "parameters": {"temperature": fitted}},
        prior=Prior(tuple(train), tuple(target), float(absorbed), float(total - absorbed)),
    )  # fmt: skip
    formula, logits = DeployedFormula.of(block), (z / fitted - file_term).astype(np.float32)
    p = softmax(formula.logits(logits, Knobs(temperature=t, adjust_strength=a, target_prior=tuple(other))))
    wanted = softmax(z / t - (a * np.log(train / other) - taken))
    np.testing.assert_allclose(p, wanted, atol=1e-5)
    same = softmax(formula.logits(logits, Knobs(adjust_strength=float(total), temperature=fitted)))
    np.testing.assert_allclose(same, softmax(logits), atol=1e-6)
    raw = formula.raw(logits)
    assert raw is not None
    np.testing.assert_allclose(raw, z, atol=1e-4)


def test_what_training_absorbed_counts_towards_the_total(tiny: ModuleType) -> None:
    """A balanced-softmax model absorbed strength 1: total 1 changes nothing, and total 0 gives back the train prior."""
    prior = Prior(train=(0.8, 0.2), absorbed=1.0, applied=0.0)
    formula = DeployedFormula.of(tiny.card(classes=("a", "b"), prior=prior))
    logits = np.zeros((1, 2))
    np.testing.assert_allclose(softmax(formula.logits(logits, Knobs(adjust_strength=1.0))), [[0.5, 0.5]], atol=1e-12)
    np.testing.assert_allclose(softmax(formula.logits(logits, Knobs(adjust_strength=0.0))), [[0.8, 0.2]], atol=1e-12)
    np.testing.assert_allclose(
        softmax(formula.logits(logits, Knobs(target_prior=(0.3, 0.7)))), [[0.3, 0.7]], atol=1e-12
    )


def test_another_prior_is_exact_for_a_calibrator_that_cannot_be_undone(tiny: ModuleType) -> None:
    formula = DeployedFormula.of(
        tiny.card(calibrator={"method": "isotonic"}, prior=Prior(train=tiny.TRAIN, applied=1.0))
    )
    q = np.array([[0.1, 0.2, 0.3, 0.4]])
    term = np.log(np.array(tiny.TRAIN) * 4)
    p = softmax(formula.logits(np.log(q) - term, Knobs(adjust_strength=0.0)))
    np.testing.assert_allclose(p, q, atol=1e-12)


def test_after_another_calibrator_the_temperature_divides_what_it_made(tiny: ModuleType) -> None:
    formula = DeployedFormula.of(tiny.card(calibrator={"method": "matrix", "parameters": {}}, prior=Prior()))
    u = np.array([[1.0, 2.0, 3.0, 4.0]])
    np.testing.assert_allclose(formula.logits(u, Knobs(temperature=2.0)), u / 2)
    assert formula.raw(u) is None


def test_adjusting_is_refused_without_a_training_prior(tiny: ModuleType) -> None:
    formula = DeployedFormula.of(tiny.card(prior=Prior()))
    with pytest.raises(ConfigError, match="training prior"):
        formula.logits(np.zeros((1, 4)), Knobs(adjust_strength=1.0))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": 0}, "between 0.001"),
        ({"temperature": "warm"}, "must be a number"),
        ({"temperature": True}, "must be a number"),
        ({"temperature": float("nan")}, "finite"),
        ({"adjust_strength": 11}, "between -10"),
        ({"abstain_below": 1.5}, "probability"),
        ({"coverage": 1}, "between 0 and 1"),
        ({"top_k": 1.5}, "whole number"),
        ({"top_k": 0}, "at least 1"),
        ({"ood": "maybe"}, "true or false"),
        ({"target_prior": "0.5,x"}, "is not a prior"),
        ({"target_prior": "[1,"}, "not JSON"),
        ({"target_prior": [0.5, -0.1]}, "negative"),
        ({"target_prior": [0, 0]}, "all 0"),
        ({"target_prior": 3}, "must be a list"),
        ({"target_prior": "shares.json"}, "is not a prior"),
        ({"target_prior": "[" * 100_000}, "not JSON"),
        ({"target_prior": "[" + "9" * 400 + ",1]"}, "finite|numbers"),
        ({"target_prior": [1e308, 1e308]}, "too large"),
        ({"temperature": 10**400}, "finite"),
    ],
)
def test_a_bad_knob_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(CalibrantError, match=message) as caught:
        Knobs.parse(values)
    assert str(caught.value).startswith(next(iter(values)))


def test_numbers_may_come_as_text_and_a_prior_as_json_or_commas() -> None:
    knobs = Knobs.parse({"temperature": "1.5", "ood": "true", "target_prior": "0.25, 0.75", "unknown": object()})
    assert knobs == Knobs(temperature=1.5, ood=True, target_prior=(0.25, 0.75))
    assert Knobs.parse({"temperature": np.float32(1.5), "top_k": np.int64(2)}) == Knobs(temperature=1.5, top_k=2)
    assert Knobs.parse({"target_prior": "[1, 3]"}).target_prior == (1.0, 3.0)


def test_a_prior_of_the_wrong_length_is_refused(tiny: ModuleType) -> None:
    with pytest.raises(DataError, match="3 shares for 4 classes"):
        DeployedFormula.of(tiny.card()).logits(np.zeros((1, 4)), Knobs(target_prior=(1, 1, 1)))


@pytest.mark.parametrize("method", ["temperature", "classwise-temperature", "vector", "matrix", "dirichlet", "beta"])
def test_every_diagonal_calibrator_of_the_toolkit_is_undone(tiny: ModuleType, method: str) -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(0, 2, (600, 3)) * np.array([1.0, 2.0, 1.5])
    y = (rng.random((600, 1)) > softmax(z / 1.5).cumsum(axis=1)).sum(axis=1).clip(0, 2)
    calibrator = fit(method, z, y)
    formula = DeployedFormula.of(tiny.card(classes=("a", "b", "c"), calibrator=calibrator.to_dict(), prior=Prior()))
    raw = formula.raw(calibrator.logits(z))
    if method in ("temperature", "classwise-temperature", "vector"):
        assert raw is not None
        np.testing.assert_allclose(raw, z, atol=1e-9)
    else:
        assert raw is None
