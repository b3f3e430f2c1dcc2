"""Isotonic, histogram and netcal's binnings equal the reference."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import Calibrator, fit, metrics
from calibrant.calibration.softmax import FLOOR
from tests.calibration.calibrators.conftest import golden, half


@pytest.mark.parametrize(
    ("method", "key", "tolerance"),
    [
        ("isotonic", "isotonic_ovr_sklearn", 1e-10),
        ("histogram", "histogram_binning_ovr_15eqwidth", 1e-10),
    ],
)
def test_one_vs_rest_methods_by_themselves_equal_the_reference(method: str, key: str, tolerance: float) -> None:
    logits, labels = half("test")
    alone = fit(method, *half("cal"), mixture=False)
    probs, expected = alone.probabilities(logits), golden()["metrics_reference"][key]
    assert metrics.accuracy(probs, labels) == expected["accuracy"]
    assert metrics.brier(probs, labels) == pytest.approx(expected["brier"], abs=tolerance)
    assert np.isfinite(metrics.nll(probs, labels))


def test_zero_probabilities_get_the_stated_floor() -> None:
    logits, labels = half("test")
    zero_before = golden()["metrics_reference"]["isotonic_ovr_sklearn"]["zero_prob_true_class"]
    own = fit("isotonic", *half("cal"), mixture=False).probabilities(logits)[np.arange(len(labels)), labels]
    assert int((own < 1e-11).sum()) == zero_before
    assert float(own.min()) == pytest.approx(FLOOR, rel=0.6)  # renormalised by the sum of the one-vs-rest values


@pytest.mark.slow  # netcal imports torch
def test_netcal_methods_equal_netcal_itself_and_print_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("netcal")
    logits, labels = half("cal")
    held_out, truth = half("test")
    for method, key in (("bbq", "netcal.BBQ"), ("enir", "netcal.ENIR")):
        probs = fit(method, logits, labels, mixture=False).probabilities(held_out)
        expected = golden()["metrics_reference"][key]
        assert metrics.brier(probs, truth) == pytest.approx(expected["brier"], abs=1e-10)
        assert metrics.accuracy(probs, truth) == expected["accuracy"]
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


def test_steps_include_their_lower_knot() -> None:
    steps = {"x": [[0.0, 0.5], [0.0]], "y": [[0.2, 0.8], [0.2]], "kind": "constant"}
    q = Calibrator("bbq", 2, steps).probabilities(np.array([[0.0, 0.0], [-0.1, 0.0]]))
    assert q[:, 0] == pytest.approx([0.8 / (0.8 + 0.2), 0.2 / (0.2 + 0.2)])  # p = .5 is on the knot, .475 below


def test_a_probability_on_an_edge_belongs_to_the_upper_interval() -> None:
    """Two equal logits are .5 each: with two intervals [0, .5) stays empty, and its value is its middle."""
    found = fit("histogram", np.zeros((4, 2)), np.array([0, 0, 0, 1]), bins=2)
    assert found.parameters["values"] == [[0.25, 0.75], [0.25, 0.25]]
