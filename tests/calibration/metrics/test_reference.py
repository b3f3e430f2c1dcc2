"""Metrics against values of independent code, on the logits of real networks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.calibration import metrics
from calibrant.calibration.softmax import softmax


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


GOLDEN = Path(__file__).resolve().parents[2] / "golden"
SHARED = Path(__file__).resolve().parents[3].parent / "shared"
NAMES = {
    "accuracy": metrics.accuracy,
    "nll": metrics.nll,
    "brier": metrics.brier,
    "ece15_l1": metrics.ece,
    "ece15_l2_rms": metrics.rms_calibration_error,
    "mce15": metrics.mce,
    "ace15_netcal_meaning_unweighted_mean_nonempty_equal_width": metrics.unweighted_ece,
    "adaptive_ece15_equal_mass_l1": metrics.adaptive_ece,
    "ce_l2_equal_mass_debiased": metrics.debiased_ece,
    "classwise_ece15_l1_mean_over_classes": metrics.classwise_ece,
    "aurc": metrics.aurc,
    "auroc_correctness_msp": metrics.auroc,
}


def reference(net: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / "calibration" / f"{net}.json").read_text())
    return found


def held_out(net: str) -> tuple[np.ndarray, np.ndarray]:
    if net == "resnet20":
        data = arrays(GOLDEN / "calibration" / "resnet20_test.npz")
        return data["logits"], data["labels"]
    path = SHARED / "data" / "logits" / f"cifar10jpeg75_{net}_test.npz"
    if not path.exists():
        pytest.skip("the second network's logits are in the shared folder only")
    data, rows = arrays(path), arrays(path.parent / "split_seed42.npz")["test_idx"]
    return data["logits"][rows], data["labels"][rows]


@pytest.mark.parametrize("net", ["resnet20", "resnet56"])
@pytest.mark.parametrize("name", sorted(NAMES))
@pytest.mark.parametrize("calibrated", [False, True])
def test_metric_equals_the_reference_to_1e_10(net: str, name: str, calibrated: bool) -> None:
    logits, labels = held_out(net)
    golden = reference(net)
    t = golden["fit"]["temperature"]["temperature"] if calibrated else 1.0
    probs = softmax(logits.astype(np.float64) / t)
    expected = golden["metrics_reference"]["temperature" if calibrated else "uncalibrated"][name]
    assert NAMES[name](probs, labels) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("temperature", [1.0, 2.574315])
@pytest.mark.parametrize("name", sorted(NAMES))
def test_float32_probabilities_move_a_metric_by_less_than_1e_6(name: str, temperature: float) -> None:
    logits, labels = held_out("resnet20")
    probs = softmax(logits.astype(np.float64) / temperature)
    double, single = NAMES[name](probs, labels), NAMES[name](probs.astype(np.float32), labels)
    assert single == pytest.approx(double, abs=1e-6)


@pytest.mark.parametrize("net", ["resnet20", "resnet56"])
def test_smooth_ece_equals_the_exact_reflected_gaussian(net: str) -> None:
    logits, labels = held_out(net)
    golden = reference(net)
    exact = golden["smece_exact_fixed_point_independent"]
    probs = softmax(logits.astype(np.float64))
    assert metrics.smooth_ece(probs, labels) == pytest.approx(exact["uncalibrated"], abs=3e-7)
    probs = softmax(logits.astype(np.float64) / golden["fit"]["temperature"]["temperature"])
    assert metrics.smooth_ece(probs, labels) == pytest.approx(exact["temperature"], abs=3e-7)


@pytest.mark.parametrize(("score", "temperature"), [("msp", 1.0), ("energy", 1.0), ("maxlogit", 1.0), ("msp", None)])
def test_ood_scores_equal_the_reference(score: str, temperature: float | None) -> None:
    path = SHARED / "data" / "logits" / "ood_fashionmnist_resnet20.npz"
    if not path.exists():
        pytest.skip("the foreign logits are in the shared folder only")
    golden = reference("resnet20")
    t = temperature or golden["fit"]["temperature"]["temperature"]
    known, foreign = held_out("resnet20")[0].astype(np.float64) / t, arrays(path)["logits"].astype(np.float64) / t

    def of(z: np.ndarray) -> np.ndarray:
        if score == "msp":
            return softmax(z).max(axis=1)
        return np.logaddexp.reduce(z, axis=1) if score == "energy" else z.max(axis=1)

    found = metrics.ood_detection(of(known), of(foreign))
    key = f"{score} T={'1' if temperature else 'opt'}"
    expected = golden["ood_fashionmnist_test10k_vs_test_half"][key]
    assert found.auroc == pytest.approx(expected["auroc"], abs=1e-9)
    assert found.fpr == pytest.approx(expected["fpr95"], abs=1e-9)
