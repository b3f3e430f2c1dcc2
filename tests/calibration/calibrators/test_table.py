"""Every method's map, written a second time from its paper, beside the steps that files and graphs are made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calibrant.calibration import METHODS, Calibrator
from calibrant.calibration.calibrators.table import FORMS, diagonal
from calibrant.errors import ConfigError

Array = NDArray[np.float64]
C = 3
RNG = np.random.default_rng(7)
MATRIX = (np.eye(C) * 0.8 + RNG.normal(0, 0.1, (C, C))).tolist()
BIAS = [0.1, -0.3, 0.2]
FEATURES = RNG.normal(size=(200, 2))  # of the rows of `logits`
KNOTS = {"x": [[0.1, 0.4, 0.8]] * C, "y": [[0.05, 0.5, 0.9]] * C}


def p_of(z: Array) -> Array:
    out: Array = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    return out


def each(function: Callable[[float], float], p: Array) -> Array:
    return np.log(np.maximum(np.vectorize(function)(p), 1e-12))


def line(p: float) -> float:
    if p <= 0.1:
        return 0.05
    if p <= 0.4:
        return 0.05 + (p - 0.1) / 0.3 * 0.45
    return 0.5 + (p - 0.4) / 0.4 * 0.4 if p <= 0.8 else 0.9


def stair(p: float) -> float:
    return 0.05 if p < 0.4 else 0.5 if p < 0.8 else 0.9


def beta(p: float) -> float:
    u = 1.5 * np.log(p) - 0.7 * np.log(1 - p) + 0.2
    return float(1 / (1 + np.exp(-u)))


def hinged(row: Array) -> Array:
    """Slopes .5 down to 1 below the winner, then .25, then 2 from 3 below on."""
    u = row - row.max()
    return np.array([0.5 * v if v >= -1 else -0.5 + 0.25 * (v + 1) if v >= -3 else -1 + 2 * (v + 3) for v in u])


def shaped(row: Array) -> Array:
    p = np.exp(row / 2) / np.exp(row / 2).sum()
    entropy = -(p * np.log(p)).sum()
    return np.log(p) * np.exp(np.tanh(0.1 - 0.4 * entropy + 0.2 * np.log(p.max())))


def dense(z: Array) -> Array:
    """Two of three centres count; features are twice and four times as far from (.5, -.5) as they are taken."""
    centres = [(1.0, 0.0), (0.0, 1.0), (-0.6, 0.8)]
    out = []
    for row, (a, b) in zip(z, FEATURES, strict=True):
        x = ((a - 0.5) / 2, (b + 0.5) / 4)
        away = sorted(1 - (x[0] * c[0] + x[1] * c[1]) / np.hypot(*x) for c in centres)[:2]
        out.append(row / 2 / (np.log1p(np.exp(1.5 * (sum(away) / 2 - 0.3))) / np.log(2)))
    return np.array(out)


CASES: dict[str, tuple[dict[str, Any], Callable[[Array], Array]]] = {
    "temperature": ({"temperature": 2.0}, lambda z: z / 2),
    "classwise-temperature": ({"temperatures": [2.0, 1.0, 0.5]}, lambda z: z * np.array([0.5, 1.0, 2.0])),
    "vector": ({"weights": [0.5, 1.0, 2.0], "bias": BIAS}, lambda z: z * np.array([0.5, 1.0, 2.0]) + np.array(BIAS)),
    "matrix": ({"matrix": MATRIX, "bias": BIAS}, lambda z: np.array([np.array(MATRIX) @ row + BIAS for row in z])),
    "dirichlet": (
        {"matrix": MATRIX, "bias": BIAS}, lambda z: np.array([np.array(MATRIX) @ np.log(p) + BIAS for p in p_of(z)])
    ),
    "structured": (
        {"inputs": "log-probabilities", "temperature": 2.0, "matrix": MATRIX, "bias": BIAS},
        lambda z: np.array([np.array(MATRIX) @ np.log(p) + BIAS for p in p_of(z / 2)]),
    ),
    "structured-vector": (
        {"inputs": "log-probabilities", "temperature": 2.0, "weights": [0.5, 1.0, 2.0], "bias": BIAS},
        lambda z: np.log(p_of(z / 2)) * np.array([0.5, 1.0, 2.0]) + np.array(BIAS),
    ),
    "mixture": (
        {
            "weights": [0.3, 0.7],
            "members": [
                {"method": "temperature", "parameters": {"temperature": 2.0}},
                {"method": "matrix", "parameters": {"matrix": MATRIX, "bias": BIAS}},
            ],
        },
        lambda z: np.log(0.3 * p_of(z / 2) + 0.7 * p_of(z @ np.array(MATRIX).T + np.array(BIAS))),
    ),
    "by-group": (
        {"common": {"method": "dirichlet", "parameters": {"matrix": MATRIX, "bias": BIAS}}, "scale": 0.5, "bias": BIAS},
        lambda z: np.array([(np.array(MATRIX) @ np.log(p) + BIAS) / 2 + BIAS for p in p_of(z)]),
    ),
    "isotonic": ({**KNOTS, "kind": "linear"}, lambda z: each(line, p_of(z))),
    "bbq": ({**KNOTS, "kind": "constant"}, lambda z: each(stair, p_of(z))),
    "enir": ({**KNOTS, "kind": "constant"}, lambda z: each(stair, p_of(z))),
    "histogram": (
        {"edges": [[0.0, 0.4, 0.8, 1.0]] * C, "values": [[0.05, 0.5, 0.9]] * C}, lambda z: each(stair, p_of(z))
    ),
    "adaptive-temperature": (
        {"temperature": 2.0, "bias": 0.1, "entropy": -0.4, "top": 0.2}, lambda z: np.array([shaped(row) for row in z])
    ),
    "density-aware": (
        {
            "temperature": 2.0, "slope": 1.5, "middle": 0.3, "nearest": 2, "mean": [0.5, -0.5], "spread": [2.0, 4.0],
            "centres": [[1.0, 0.0], [0.0, 1.0], [-0.6, 0.8]],
        },
        dense,
    ),
    "order-preserving": (
        {"knots": [-1.0, -3.0], "slopes": [0.5, 0.25, 2.0]}, lambda z: np.array([hinged(row) for row in z])
    ),
    "spline": ({**KNOTS, "kind": "linear", "temperature": 2.0}, lambda z: each(line, p_of(z / 2))),
    "venn-abers": ({**KNOTS, "kind": "constant", "temperature": 2.0}, lambda z: each(stair, p_of(z / 2))),
    "beta": ({"a": [1.5] * C, "b": [0.7] * C, "c": [0.2] * C}, lambda z: each(beta, p_of(z))),
    "ensemble-temperature": (
        {"temperature": 2.0, "weights": [0.6, 0.3, 0.1]}, lambda z: np.log(0.6 * p_of(z / 2) + 0.3 * p_of(z) + 0.1 / 3)
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def logits() -> Array:
    return np.random.default_rng(8).normal(0, 1.5, (200, C))


@pytest.mark.parametrize("method", CASES)
def test_calibrated_logits_are_what_the_paper_says(method: str, logits: Array) -> None:
    parameters, by_hand = CASES[method]
    assert Calibrator(method, C, parameters).logits(logits, FEATURES) == pytest.approx(by_hand(logits), abs=1e-9)


def test_every_method_of_the_table_has_a_case_and_a_name_for_users() -> None:
    assert set(CASES) == set(FORMS)
    assert (*FORMS, "auto") == METHODS


def test_the_help_of_calibrate_and_its_guide_name_every_method() -> None:
    from calibrant.calibration.cli.calibrate import fit_command

    guide = (Path(__file__).resolve().parents[3] / "docs" / "calibration.md").read_text()
    assert [m for m in METHODS if m not in (fit_command.help or "").replace("\n", " ").split()] == []
    assert [m for m in FORMS if f"`{m}`" not in guide] == []


@pytest.mark.parametrize("method", CASES)
def test_only_maps_of_each_logit_by_itself_can_be_undone(method: str, logits: Array) -> None:
    parameters, by_hand = CASES[method]
    found = diagonal(method, parameters, C)
    assert (found is not None) == (method in ("temperature", "classwise-temperature", "vector"))
    if found is not None:
        assert (by_hand(logits) - found.c) / found.a == pytest.approx(logits, abs=1e-12)


def test_an_unknown_method_is_refused_with_its_neighbour() -> None:
    with pytest.raises(ConfigError, match='"isotonc".*did you mean "isotonic"'):
        Calibrator("isotonc", C, {})
