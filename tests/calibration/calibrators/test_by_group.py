"""Corrections of groups: by hand, shrunken where groups are alike, told where they differ."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from calibrant.calibration import Calibrator, fit
from calibrant.calibration.calibrators.by_group import (
    PAIRS,
    Correction,
    Corrections,
    _derivatives,
    _fit,
    fit_corrections,
    parameters_of,
)
from calibrant.calibration.softmax import log_softmax, softmax
from calibrant.errors import ConfigError

Array = NDArray[np.float64]


def drawn(
    rows: int, groups: int, temperatures: list[float], shift: float, seed: int
) -> tuple[Array, NDArray[np.int64], NDArray[np.str_]]:
    """Rows of groups whose true probabilities are softmax(z / T_g + the group's own biases)."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 3, (rows, 4))
    g = rng.integers(0, groups, rows)
    bias = shift * np.random.default_rng(99).normal(size=(groups, 4))
    p = softmax(z / np.array(temperatures)[g][:, None] + bias[g])
    return z, (p.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1), np.array([f"site{v}" for v in g])


def nll(zeta: Array, y: NDArray[np.int64]) -> float:
    return float(-log_softmax(zeta)[np.arange(len(y)), y].mean())


def test_derivatives_are_those_of_the_losses() -> None:
    rng = np.random.default_rng(0)
    x, y, w = log_softmax(rng.normal(size=(30, 3))), rng.integers(0, 3, 30), rng.uniform(0.5, 2, 30)
    t = rng.normal(0, 0.3, 4)

    def loss(at: Array) -> float:
        return float(-w @ log_softmax(x * (1 + at[0]) + at[1:])[np.arange(30), y])

    gradient, second = _derivatives(x, y, w, t)
    for j, e in enumerate(np.eye(4) * 1e-5):
        assert gradient[j] == pytest.approx((loss(t + e) - loss(t - e)) / 2e-5, abs=1e-6)
        slope = (_derivatives(x, y, w, t + e)[0] - _derivatives(x, y, w, t - e)[0]) / 2e-5
        assert second[j] == pytest.approx(slope, abs=1e-6)


def test_the_evidence_of_one_number_is_its_integral() -> None:
    z, y, _ = drawn(60, 1, [2.0], 0, 1)
    x, s = log_softmax(z), 0.3
    _, found = _fit(x, y, np.ones(60), s, 0.0)
    d = np.linspace(-1.5, 1.5, 4001)
    gain = np.array([-60 * (nll(x * (1 + v), y) - nll(x, y)) for v in d])
    density = np.exp(gain - 0.5 * d**2 / s**2) / np.sqrt(2 * np.pi * s**2)
    assert found == pytest.approx(np.log(density.sum() * (d[1] - d[0])), abs=0.05)


def test_groups_that_are_alike_get_next_to_nothing() -> None:
    z, y, g = drawn(600, 6, [2.0] * 6, 0, 2)
    found = fit_corrections(fit("temperature", z, y).logits(z), y, g)
    assert found.shares[0.0, 0.0] > 0.8
    assert max(abs(c.scale - 1) for c in found.of.values()) < 0.03
    assert set(found.shares) == set(PAIRS)


def test_groups_that_differ_are_told_and_predicted_better() -> None:
    temperatures = [1.0, 2.0, 4.0]
    z, y, g = drawn(600, 3, temperatures, 0.7, 3)
    fresh, truth, where = drawn(6000, 3, temperatures, 0.7, 4)
    common = fit("temperature", z, y)
    found = fit_corrections(common.logits(z), y, g)
    assert found.shares[0.0, 0.0] < 0.01
    scales = [found.of[f"site{k}"].scale for k in range(3)]
    assert scales[0] > 1 > scales[2]
    assert nll(found.logits(common.logits(fresh), where), truth) < nll(common.logits(fresh), truth) - 0.03


def test_rows_of_no_group_and_of_small_or_new_ones_keep_the_common_map() -> None:
    z, y, g = drawn(200, 2, [1.0, 4.0], 0.5, 5)
    g = g.astype(object)
    g[:5], g[5:40] = "tiny", ""
    found = fit_corrections(z, y, g)
    assert set(found.of) == {"site0", "site1"}
    others = np.array(["tiny", "", "new"])
    assert np.array_equal(found.logits(z[:3], others), z[:3])


def test_weights_count_as_rows_do() -> None:
    z, y, g = drawn(300, 2, [1.0, 4.0], 0.5, 6)
    twice = fit_corrections(np.repeat(z, 2, axis=0)[:400], np.repeat(y, 2)[:400], np.repeat(g, 2)[:400])
    weighted = fit_corrections(z[:200], y[:200], g[:200], np.full(200, 5.0))
    plain = fit_corrections(z[:200], y[:200], g[:200])
    assert weighted.of["site0"].scale == pytest.approx(plain.of["site0"].scale)
    assert twice.of["site0"].scale != pytest.approx(plain.of["site0"].scale, abs=1e-4)
    without = fit_corrections(z, y, g, np.where(np.arange(300) < 200, 1.0, 0.0))
    assert without.of["site0"].scale == pytest.approx(plain.of["site0"].scale, abs=1e-6)


def test_beyond_a_hundred_classes_a_group_has_a_scale_only() -> None:
    rng = np.random.default_rng(7)
    z = rng.normal(0, 2, (400, 101))
    y = (softmax(z).cumsum(axis=1) > rng.random((400, 1))).argmax(axis=1)
    found = fit_corrections(2 * z, y, np.array(["a", "b"] * 200))
    assert all(r == 0.0 for _, r in found.shares)
    assert found.of["a"].scale < 0.8
    assert not found.of["a"].bias.any()


def test_a_group_s_calibrator_is_the_common_map_and_its_correction() -> None:
    z, y, _ = drawn(300, 1, [2.0], 0.3, 8)
    correction = Correction(1.2, np.array([0.1, 0.0, -0.2, 0.1]))
    rows = np.array(["a"] * 300)
    for method in ("temperature", "structured", "isotonic"):
        common = fit(method, z, y)
        parameters = parameters_of(method, common.parameters, correction)
        made = Calibrator.from_json(Calibrator("by-group", 4, parameters).to_json())
        by_hand = Corrections({"a": correction}, {}).logits(common.logits(z), rows)
        assert made.probabilities(z) == pytest.approx(softmax(by_hand), abs=1e-12)
    tempered = Calibrator("by-group", 4, parameters_of("temperature", {"temperature": 2.0}, correction))
    assert tempered.as_affine() is not None  # it folds into the network's last layer


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": -1.0}, "positive"),
        ({"bias": [0.0]}, "bias"),
        ({"common": "temperature"}, "a method with its parameters"),
        ({"common": {"method": "by-group", "parameters": {}}}, "cannot be that of a group"),
        ({"common": {"method": "temperature", "parameters": {"temperature": 0}}}, "positive"),
    ],
)
def test_damaged_ones_are_refused(change: dict[str, object], message: str) -> None:
    good = parameters_of("temperature", {"temperature": 2.0}, Correction(1.0, np.zeros(3)))
    with pytest.raises(ConfigError, match=message):
        Calibrator("by-group", 3, {**good, **change})


def test_it_is_not_fitted_without_groups() -> None:
    with pytest.raises(ConfigError, match="calibrate by-group"):
        fit("by-group", np.zeros((20, 2)), np.zeros(20, int))
