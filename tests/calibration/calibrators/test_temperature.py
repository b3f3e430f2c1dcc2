"""Temperature scaling: the optimum, its certificate, and what happens where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from calibrant.calibration import Calibrator, fit
from calibrant.calibration.calibrators.temperature import minimise_nll, nll_pass
from calibrant.calibration.softmax import log_softmax, softmax
from calibrant.errors import CalibrantError, ConfigError, DataError, FormatError


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "calibration"


def cal_half() -> tuple[np.ndarray, np.ndarray]:
    data = arrays(GOLDEN / "resnet20_cal.npz")
    return data["logits"], data["labels"]


def test_temperature_equals_the_reference() -> None:
    golden = json.loads((GOLDEN / "resnet20.json").read_text())["fit"]["temperature"]
    found = minimise_nll(*cal_half())
    assert found.converged
    assert found.temperature == pytest.approx(golden["temperature"], rel=1e-6)
    assert found.nll == pytest.approx(golden["nll_cal"], abs=1e-12)
    assert found.standard_error == pytest.approx(golden["std_err_T_fisher"], rel=1e-6)
    assert found.passes <= 8


def test_float32_float64_and_shuffled_rows_give_the_same_temperature() -> None:
    logits, labels = cal_half()
    single = minimise_nll(logits, labels).temperature
    assert minimise_nll(logits.astype(np.float64), labels).temperature == single
    order = np.random.default_rng(0).permutation(len(labels))
    assert minimise_nll(logits[order], labels[order]).temperature == single


@pytest.mark.parametrize("true", [0.2, 1.0, 7.0])
def test_temperature_that_made_the_labels_is_found_again(true: float) -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(size=(40_000, 6)) * 3 * true
    labels = (softmax(z / true).cumsum(axis=1) > rng.random((40_000, 1))).argmax(axis=1)
    found = minimise_nll(z, labels)
    assert found.standard_error is not None
    assert abs(found.temperature - true) < 4 * found.standard_error


@pytest.mark.parametrize("classes", [3, 100])  # two layouts of the inner loop
def test_derivatives_equal_differences(classes: int) -> None:
    rng = np.random.default_rng(2)
    z, y, w, o = rng.normal(size=(50, classes)), rng.integers(0, classes, 50), rng.random(50), rng.normal(size=classes)
    value, g, h, _ = nll_pass(z, y, w, o, 0.7)

    def at(b: float) -> float:
        return float(-(w * log_softmax(b * z + o)[np.arange(50), y]).sum() / w.sum())

    assert value == pytest.approx(at(0.7), abs=1e-12)
    assert g == pytest.approx((at(0.7 + 1e-5) - at(0.7 - 1e-5)) / 2e-5, abs=1e-8)
    assert h == pytest.approx((at(0.7 + 1e-4) - 2 * at(0.7) + at(0.7 - 1e-4)) / 1e-8, abs=1e-5)


def test_fit_inside_the_prior_adjustment_is_the_optimum_of_the_whole_formula() -> None:
    logits, labels = cal_half()
    ratio = np.linspace(-0.5, 0.5, 10)
    found = fit("temperature", logits, labels, log_prior_ratio=ratio, strength=1.0)

    def loss(t: float) -> float:
        return float(-log_softmax(logits / t - ratio)[np.arange(len(labels)), labels].mean())

    t = found.parameters["temperature"]
    assert loss(t) < min(loss(t * 1.001), loss(t * 0.999))
    assert t != fit("temperature", logits, labels).parameters["temperature"]


def test_weights_count_as_repeated_rows() -> None:
    logits, labels = (a[:500] for a in cal_half())
    weights = np.random.default_rng(3).integers(0, 4, 500)
    again = np.repeat(np.arange(500), weights)
    weighted = fit("temperature", logits, labels, weights=weights.astype(float))
    repeated = fit("temperature", logits[again], labels[again])
    assert weighted.parameters["temperature"] == pytest.approx(repeated.parameters["temperature"], rel=1e-9)


def test_data_without_an_optimum_end_at_a_bound_and_say_so() -> None:
    z = np.eye(3) * 5
    separated = minimise_nll(z, np.array([0, 1, 2]))
    assert (separated.temperature, separated.converged) == (0.01, False)
    assert "separate" in str(separated.note)
    opposed = minimise_nll(z, np.array([1, 2, 0]))
    assert (opposed.temperature, opposed.converged) == (100.0, False)
    assert "do not follow" in str(opposed.note)
    constant = minimise_nll(np.zeros((3, 3)), np.array([1, 2, 0]))
    assert (constant.temperature, constant.converged) == (1.0, False)


def test_json_round_trip_gives_the_same_probabilities() -> None:
    logits, labels = cal_half()
    calibrator = fit("temperature", logits, labels)
    again = Calibrator.from_json(calibrator.to_json())
    assert again == calibrator
    assert np.array_equal(again.probabilities(logits[:5]), calibrator.probabilities(logits[:5]))
    affine = calibrator.as_affine()
    assert affine is not None
    assert np.allclose(affine.a * logits + affine.c, calibrator.logits(logits), atol=1e-12)


def test_damaged_foreign_and_newer_files_are_refused_by_name(tmp_path: Path) -> None:
    good = fit("temperature", *cal_half()).to_dict()
    for change, message in (
        ({"format_version": 99}, "newer"),
        ({"kind": "model"}, "not a calibrator"),
        ({"parameters": {}}, "temperature"),
        ({"parameters": {"temperature": -1}}, "positive"),
        ({"parameters": {"temperature": "x"}}, "numbers"),
        ({"method": "temprature"}, "did you mean"),
    ):
        path = tmp_path / "c.json"
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(FormatError, match=message):
            Calibrator.load(path)
    path.write_bytes(b"\x80\x04K\x01.")  # a pickle
    with pytest.raises(FormatError, match="not JSON"):
        Calibrator.load(path)


def test_wrong_use_is_refused() -> None:
    logits, labels = cal_half()
    with pytest.raises(ConfigError, match="did you mean"):
        fit("temprature", logits, labels)
    with pytest.raises(ConfigError, match="no option"):
        fit("temperature", logits, labels, bins=3)
    with pytest.raises(ConfigError, match="without log_prior_ratio"):
        fit("temperature", logits, labels, strength=1.0)
    with pytest.raises(DataError, match="3 classes"):
        fit("temperature", logits, labels).probabilities(np.zeros((2, 3)))
    with pytest.raises(CalibrantError, match="NaN or infinity"):
        fit("temperature", np.full((2, 2), np.nan), [0, 1])
