"""Calibrators that are functions of one probability: the graph against a plain numpy loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from calibrant.calibration.calibrators.steps import BetaMap, MixtureMap
from calibrant.calibration.softmax import softmax
from calibrant.export.checks.parity import session
from calibrant.export.graph.blocks import COMPARED, EPS
from calibrant.export.graph.blocks import GraphStep as Step
from calibrant.export.graph.piecewise import PiecewiseMap
from calibrant.export.graph.tail import Tail, standalone

Array = NDArray[Any]


def run(step: Step, z: Array, output: str = "logits") -> Array:
    tail = Tail(z.shape[1], "raw_logits", None, None, [step])
    model = standalone(tail)
    onnx.checker.check_model(onnx.ModelProto.FromString(model), full_check=True)
    found: Array = session(model).run([output], {"raw_logits": z.astype(np.float32)})[0]
    return found


def logits(rows: int, classes: int, seed: int = 0, scale: float = 3.0) -> Array:
    return np.random.default_rng(seed).normal(0, scale, (rows, classes)).astype(np.float32)


def random_map(classes: int, knots: int, *, linear: bool, seed: int = 0) -> PiecewiseMap:
    """Sorted knots per class, some of the last ones padding; lines that join, or steps."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 1, (classes, knots)), axis=1)
    x[0, knots // 2 :] = 2.0
    y = np.sort(rng.uniform(0, 1, (classes, knots + 1)), axis=1)
    if not linear:
        return PiecewiseMap(x, y)
    left = np.concatenate([np.zeros((classes, 1)), x], axis=1)
    slope = rng.uniform(0, 1, (classes, knots + 1))
    return PiecewiseMap(x, y, slope, left)


def by_hand(step: PiecewiseMap, p: Array) -> Array:
    q = np.empty(p.shape)
    for i in range(p.shape[0]):
        for k in range(p.shape[1]):
            j = int(np.sum(step.knots[k] <= p[i, k]))
            q[i, k] = step.start[k, j]
            if step.slope is not None and step.origin is not None:
                q[i, k] += step.slope[k, j] * (p[i, k] - step.origin[k, j])
    return q


def away_from(knots: Array, p: Array) -> NDArray[np.bool_]:
    """Rows whose probabilities are not within float32 rounding of a step."""
    near: Array = np.abs(p[:, :, None] - knots[None]) < 1e-6
    return np.asarray(~near.any((1, 2)))


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("knots", [1, 2, COMPARED, COMPARED + 1, 63, 64, 200])
def test_piecewise_map_by_comparing_and_by_search(knots: int, linear: bool) -> None:
    step, z = random_map(6, knots, linear=linear, seed=knots), logits(300, 6)
    p = softmax(z)
    keep = away_from(step.knots, p)
    assert keep.sum() > 200
    expected = by_hand(step, p)
    np.testing.assert_allclose(run(step, z)[keep], np.log(np.maximum(expected, EPS))[keep], atol=2e-5)


def test_a_probability_on_a_knot_belongs_to_the_right() -> None:
    # two equal logits give exactly 0.5 in float32
    step = PiecewiseMap(np.array([[0.5], [0.5]]), np.array([[0.1, 0.8], [0.1, 0.8]]))
    np.testing.assert_allclose(run(step, np.zeros((1, 2))), np.log([[0.8, 0.8]]), rtol=1e-6)


def test_row_of_zeros_becomes_uniform_and_no_probability_is_zero() -> None:
    step = PiecewiseMap(np.array([[0.5]] * 3), np.zeros((3, 2)))
    np.testing.assert_allclose(run(step, logits(4, 3), "probabilities"), np.full((4, 3), 1 / 3), rtol=1e-6)
    step = PiecewiseMap(np.array([[0.5]] * 3), np.array([[0.0, 1.0]] * 3))
    p = run(step, np.array([[5.0, 0.0, 0.0]]), "probabilities")
    assert p.min() > 0
    assert p[0, 0] == pytest.approx(1.0)


def test_beta_map_keeps_its_digits_next_to_one() -> None:
    rng = np.random.default_rng(2)
    a, b, c = rng.uniform(0.3, 2, 5), rng.uniform(0.3, 2, 5), rng.normal(0, 1, 5)
    for scale in (1.0, 4.0, 9.0):
        z = logits(500, 5, 3, scale)
        e = np.exp(z.astype(np.float64) - z.max(1, keepdims=True))
        p = e / e.sum(1, keepdims=True)
        rest = np.stack([np.delete(e, k, 1).sum(1) for k in range(5)], axis=1) / e.sum(1, keepdims=True)
        lowest = np.finfo(np.float64).eps
        u = a * np.log(np.maximum(p, lowest)) - b * np.log(np.maximum(rest, lowest)) + c
        expected = np.maximum(-np.logaddexp(0, -u), np.log(EPS))
        np.testing.assert_allclose(run(BetaMap(a, b, c), z), expected, atol=2e-5, rtol=1e-5)


def test_beta_map_with_tied_winners_and_with_one_certain_class() -> None:
    identity = BetaMap(np.ones(3), np.ones(3), np.zeros(3))  # log q = log p
    np.testing.assert_allclose(run(identity, np.array([[2.0, 2.0, 0.0]]), "probabilities"),
                               softmax(np.array([[2.0, 2.0, 0.0]])), atol=1e-6)  # fmt: skip
    certain = run(BetaMap(np.ones(3), np.zeros(3), np.zeros(3)), np.array([[500.0, 0.0, 0.0]]), "probabilities")
    assert np.isfinite(certain).all()
    assert certain[0, 0] == pytest.approx(0.5 / (0.5 + 2e-12), rel=1e-5)


def test_mixture_of_temperatures_by_hand() -> None:
    z = logits(50, 4)
    step = MixtureMap((2.5, 1.0), (0.6, 0.3), 0.1 / 4)
    expected = 0.6 * softmax(z / 2.5) + 0.3 * softmax(z) + 0.1 / 4
    np.testing.assert_allclose(run(step, z, "probabilities"), expected, atol=1e-6)
    np.testing.assert_allclose(run(step, z), np.log(expected), atol=1e-5)


def steps() -> Sequence[Step]:
    return [random_map(4, 5, linear=True), BetaMap(np.ones(4), np.ones(4), np.zeros(4)), MixtureMap((2.0,), (1.0,), 0)]


@pytest.mark.parametrize("step", steps(), ids=lambda s: type(s).__name__)
def test_rows_do_not_mix(step: Step) -> None:
    z = logits(9, 4, 5)
    whole = run(step, z)
    np.testing.assert_allclose(np.concatenate([run(step, z[i : i + 1]) for i in range(9)]), whole, atol=1e-6)
