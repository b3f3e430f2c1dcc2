"""Every method: reference values, its promises, JSON, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.calibration import METHODS, Calibrator, fit, metrics
from calibrant.calibration.softmax import FLOOR, log_softmax, softmax
from calibrant.errors import ConfigError, FormatError


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "calibration"
PLAIN = tuple(m for m in METHODS if m not in ("auto", "bbq", "enir"))


def half(part: str) -> tuple[np.ndarray, np.ndarray]:
    data = arrays(GOLDEN / f"resnet20_{part}.npz")
    return data["logits"], data["labels"]


def golden() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / "resnet20.json").read_text())
    return found


@pytest.fixture(scope="module")
def fitted() -> dict[str, Calibrator]:
    logits, labels = half("cal")
    return {method: fit(method, logits, labels) for method in PLAIN}


@pytest.mark.parametrize(
    ("method", "options", "key", "objective"),
    [
        ("vector", {}, "vector", "nll_cal"),
        ("classwise-temperature", {}, "vector_nobias_per_class_temperature", "nll_cal"),
        ("matrix", {"penalty": 0.0}, "matrix_unregularised", "nll_cal"),
        ("dirichlet", {"penalty": 0.001}, "dirichlet_odir_lam0.001", "objective"),
        ("dirichlet", {"penalty": 0.1}, "dirichlet_odir_lam0.1", "objective"),
    ],
)
def test_affine_maps_reach_the_reference_optimum(
    method: str, options: dict[str, Any], key: str, objective: str
) -> None:
    found = fit(method, *half("cal"), **options)
    assert found.fit["converged"]
    assert found.fit["objective"] == pytest.approx(golden()["fit"][key][objective], abs=1e-8)
    assert found.fit["objective"] <= golden()["fit"][key][objective] + 1e-11
    logits, labels = half("test")
    expected = golden()["metrics_reference"][key]
    assert metrics.nll(found.probabilities(logits), labels) == pytest.approx(expected["nll"], abs=3e-7)
    assert metrics.accuracy(found.probabilities(logits), labels) == expected["accuracy"]


@pytest.mark.parametrize(
    ("method", "key", "tolerance"),
    [
        ("isotonic", "isotonic_ovr_sklearn", 1e-10),
        ("histogram", "histogram_binning_ovr_15eqwidth", 1e-10),
        ("beta", "beta_ovr_betacal_abm", 2e-5),  # betacal cuts its input elsewhere
    ],
)
def test_one_vs_rest_methods_equal_the_reference(
    fitted: dict[str, Calibrator], method: str, key: str, tolerance: float
) -> None:
    logits, labels = half("test")
    probs, expected = fitted[method].probabilities(logits), golden()["metrics_reference"][key]
    assert metrics.accuracy(probs, labels) == expected["accuracy"]
    assert metrics.brier(probs, labels) == pytest.approx(expected["brier"], abs=tolerance)
    assert np.isfinite(metrics.nll(probs, labels))


def test_zero_probabilities_get_the_stated_floor(fitted: dict[str, Calibrator]) -> None:
    logits, labels = half("test")
    zero_before = golden()["metrics_reference"]["isotonic_ovr_sklearn"]["zero_prob_true_class"]
    own = fitted["isotonic"].probabilities(logits)[np.arange(len(labels)), labels]
    assert int((own < 1e-11).sum()) == zero_before
    assert float(own.min()) == pytest.approx(FLOOR, rel=0.6)  # renormalised by the sum of the one-vs-rest values


def test_structured_is_no_worse_than_the_best_public_method(fitted: dict[str, Calibrator]) -> None:
    logits, labels = half("test")
    best = golden()["metrics_reference"]["probmetrics.sms"]["nll"]
    # 1e-4 is a twentieth of the NLL's own standard error here, and what the public method's own choices move.
    assert metrics.nll(fitted["structured"].probabilities(logits), labels) <= best + 1e-4


def test_structured_on_logits_is_affine_and_on_log_probabilities_is_not() -> None:
    logits, labels = (a[:600] for a in half("cal"))
    on_logits = fit("structured", logits, labels, inputs="logits")
    affine = on_logits.as_affine()
    assert affine is not None
    assert np.allclose(logits @ affine.a.T + affine.c, on_logits.logits(logits), atol=1e-9)
    assert fit("structured", logits, labels, inputs="log-probabilities").as_affine() is None


def test_structured_with_few_rows_stays_near_the_temperature_where_a_free_matrix_does_not() -> None:
    logits, labels = half("cal")
    held_out, truth = half("test")
    few = np.random.default_rng(0).permutation(len(labels))[:150]
    losses = {
        method: metrics.nll(fit(method, logits[few], labels[few], **options).probabilities(held_out), truth)
        for method, options in (("structured", {}), ("temperature", {}), ("vector", {}))
    }
    assert losses["structured"] < losses["temperature"]
    assert losses["structured"] < losses["vector"]


@pytest.mark.parametrize("method", PLAIN)
def test_rows_stay_probabilities_and_json_round_trips(fitted: dict[str, Calibrator], method: str) -> None:
    logits = half("test")[0][:400]
    calibrator = fitted[method]
    probs = calibrator.probabilities(logits)
    assert np.allclose(probs.sum(axis=1), 1.0, atol=1e-12)
    assert float(probs.min()) > 0
    again = Calibrator.from_json(calibrator.to_json())
    assert np.array_equal(again.probabilities(logits), probs)


@pytest.mark.parametrize("method", PLAIN)
def test_affine_form_is_the_map_itself(fitted: dict[str, Calibrator], method: str) -> None:
    logits = half("test")[0][:50].astype(np.float64)
    affine = fitted[method].as_affine()
    if affine is None:
        assert method in ("dirichlet", "structured", "isotonic", "histogram", "beta", "ensemble-temperature")
        return
    a, c = affine.a, affine.c
    mapped = (a * logits if a.ndim == 1 else logits @ a.T) + c
    assert np.allclose(mapped, fitted[method].logits(logits), atol=1e-9)


def test_order_preserving_methods_keep_the_prediction(fitted: dict[str, Calibrator]) -> None:
    logits = half("test")[0]
    for method in ("temperature", "ensemble-temperature"):
        assert np.array_equal(fitted[method].probabilities(logits).argmax(axis=1), logits.argmax(axis=1))


def test_ensemble_temperature_is_the_likelihood_maximum_over_its_weights() -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(size=(4000, 4)) * 3
    truth = 0.6 * softmax(z / 2) + 0.2 * softmax(z) + 0.2 / 4
    y = (truth.cumsum(axis=1) > rng.random((4000, 1))).argmax(axis=1)
    found = fit("ensemble-temperature", z, y)
    w, t = np.array(found.parameters["weights"]), found.parameters["temperature"]
    parts = np.stack([softmax(z / t), softmax(z), np.full_like(z, 0.25)])[:, np.arange(4000), y]

    def loss(mix: np.ndarray) -> float:
        return float(-np.log(mix @ parts).mean())

    for i in range(3):
        for j in range(3):
            moved = w.copy()
            step = min(1e-3, moved[j])
            moved[i] += step
            moved[j] -= step
            assert loss(w) <= loss(moved) + 1e-10


def test_weights_and_offset_reach_every_affine_method() -> None:
    logits, labels = (a[:800] for a in half("cal"))
    weights = np.random.default_rng(2).integers(0, 3, 800).astype(float)
    again = np.repeat(np.arange(800), weights.astype(int))
    for method in ("vector", "classwise-temperature"):
        one = fit(method, logits, labels, weights=weights).logits(logits[:5])
        two = fit(method, logits[again], labels[again]).logits(logits[:5])
        assert np.allclose(one, two, atol=1e-6), method
    ratio = np.linspace(-1, 1, 10)
    inside = fit("vector", logits, labels, log_prior_ratio=ratio, strength=1.0)
    plain = fit("vector", logits, labels)
    # A free bias takes the fixed term up entirely: both give the same final probabilities.
    assert np.allclose(
        inside.probabilities(logits[:9], log_prior_ratio=ratio, strength=1.0),
        plain.probabilities(logits[:9]),
        atol=1e-6,
    )


def test_many_classes_take_the_first_order_path_to_the_same_optimum() -> None:
    from calibrant.calibration.calibrators import newton

    rng = np.random.default_rng(3)
    z = rng.normal(size=(400, 6))
    y = rng.integers(0, 6, 400)
    exact = fit("matrix", z, y, penalty=0.1)
    limit = newton.NEWTON_PARAMETERS
    try:
        newton.NEWTON_PARAMETERS = 0
        other = fit("matrix", z, y, penalty=0.1)
    finally:
        newton.NEWTON_PARAMETERS = limit
    assert other.fit["objective"] == pytest.approx(exact.fit["objective"], abs=1e-7)


@pytest.mark.slow  # netcal imports torch
def test_netcal_methods_equal_netcal_itself_and_print_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("netcal")
    logits, labels = half("cal")
    held_out, truth = half("test")
    for method, key in (("bbq", "netcal.BBQ"), ("enir", "netcal.ENIR")):
        probs = fit(method, logits, labels).probabilities(held_out)
        expected = golden()["metrics_reference"][key]
        assert metrics.brier(probs, truth) == pytest.approx(expected["brier"], abs=1e-10)
        assert metrics.accuracy(probs, truth) == expected["accuracy"]
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


def test_steps_include_their_lower_knot() -> None:
    steps = {"x": [[0.0, 0.5], [0.0]], "y": [[0.2, 0.8], [0.2]], "kind": "constant"}
    q = Calibrator("bbq", 2, steps).probabilities(np.array([[0.0, 0.0], [-0.1, 0.0]]))
    assert q[:, 0] == pytest.approx([0.8 / (0.8 + 0.2), 0.2 / (0.2 + 0.2)])  # p = .5 is on the knot, .475 below


def test_auto_takes_the_simplest_that_is_not_clearly_worse() -> None:
    rng = np.random.default_rng(5)
    z = rng.normal(size=(1500, 4)) * 4
    y = (softmax(z / 2).cumsum(axis=1) > rng.random((1500, 1))).argmax(axis=1)  # a temperature is the truth
    found = fit("auto", z, y, candidates=("temperature", "vector", "structured"))
    assert found.method == "temperature"
    table = found.fit["auto"]["methods"]
    assert set(table) == {"temperature", "vector", "structured"}
    assert table["temperature"]["low"] < table["temperature"]["nll"] < table["temperature"]["high"]
    logits, labels = (a[:1200] for a in half("cal"))
    best = fit("auto", logits, labels, candidates=("temperature", "vector"))
    assert best.method == "vector"  # class-dependent shift: bias terms pay
    assert "lowest" in best.fit["auto"]["why"]


def test_auto_keeps_the_simpler_method_while_the_gain_could_be_noise() -> None:
    rng = np.random.default_rng(6)
    z = rng.normal(size=(600, 3)) * 4
    shift = np.array([0.06, 0.0, -0.06])
    y = (softmax(z / 2 + shift).cumsum(axis=1) > rng.random((600, 1))).argmax(axis=1)
    found = fit("auto", z, y, candidates=("temperature", "vector"))
    assert found.fit["auto"]["best"] == "vector"
    assert found.method == "temperature"
    assert "cannot be told" in found.fit["auto"]["why"]


def test_classes_without_rows_are_survived() -> None:
    rng = np.random.default_rng(6)
    z = rng.normal(size=(200, 4))
    y = rng.integers(0, 3, 200)  # class 3 never occurs
    for method in ("temperature", "matrix", "structured", "beta", "isotonic", "histogram", "ensemble-temperature"):
        probs = fit(method, z, y).probabilities(z)
        assert np.isfinite(log_softmax(np.log(probs))).all(), method


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        ("vector", {"weights": [1.0]}, "weights"),
        ("matrix", {"matrix": [[1.0]]}, "matrix"),
        ("isotonic", {"kind": "cubic"}, "kind"),
        ("isotonic", {"x": [[0.0, 0.0]] * 10, "y": [[0.0, 1.0]] * 10}, "increasing"),
        ("histogram", {"values": [[2.0] * 15] * 10}, "shares"),
        ("beta", {"a": [-1.0] * 10}, "negative"),
        ("ensemble-temperature", {"weights": [0.5, 0.5, 0.5]}, "sum to one"),
        ("structured", {"inputs": "pixels"}, "inputs"),
    ],
)
def test_damaged_parameters_are_refused_by_name(
    fitted: dict[str, Calibrator], method: str, change: dict[str, Any], message: str
) -> None:
    block = fitted[method].to_dict()
    block["parameters"] = {**block["parameters"], **change}
    with pytest.raises(FormatError, match=message):
        Calibrator.from_dict(block)


def test_options_that_do_not_belong_are_refused() -> None:
    logits, labels = (a[:100] for a in half("cal"))
    with pytest.raises(ConfigError, match='no option "penalty"'):
        fit("vector", logits, labels, penalty=1)
    with pytest.raises(ConfigError, match="did you mean"):
        fit("matrix", logits, labels, penalti=1)
    with pytest.raises(ConfigError, match="0 or more"):
        fit("matrix", logits, labels, penalty=-1.0)
    with pytest.raises(ConfigError, match="cannot be fitted inside"):
        fit("isotonic", logits, labels, log_prior_ratio=np.zeros(10), strength=1.0)
    with pytest.raises(ConfigError, match="no weights"):
        fit("bbq", logits, labels, weights=np.ones(100))
