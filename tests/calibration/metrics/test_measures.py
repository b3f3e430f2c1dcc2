"""Metrics against values of independent code, values by hand, and the laws that define them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.calibration import metrics
from calibrant.calibration.softmax import softmax
from calibrant.errors import CalibrantError, DataError


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


GOLDEN = Path(__file__).resolve().parents[2] / "golden"
SHARED = Path(__file__).resolve().parents[3].parent / "shared"
EDGE_CASES = sorted((GOLDEN / "metrics").glob("*.npz"))
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


def test_smooth_ece_counts_confidence_one_in_full() -> None:
    # Half the rows: confidence 1, right. Half: confidence .6, right on 40 %. True error .5 * 0 + .5 * .2 = .1, smeared
    # little: the popular implementation says .1327.
    probs = np.array([[1.0, 0.0]] * 5000 + [[0.6, 0.4]] * 5000)
    labels = np.array([0] * 5000 + [0] * 2000 + [1] * 3000)
    assert metrics.smooth_ece(probs, labels) == pytest.approx(0.1, abs=2e-3)


@pytest.mark.parametrize("path", EDGE_CASES, ids=lambda p: p.stem)
@pytest.mark.parametrize("bins", [15, 10])
def test_edge_cases_equal_the_published_evaluators(path: Path, bins: int) -> None:
    data = arrays(path)
    probs, labels = data["probs"], data["labels"]
    halves = metrics.over_under_ece(probs, labels, bins=bins)
    single = {
        "ece": metrics.ece(probs, labels, bins=bins),
        "aece": metrics.adaptive_ece(probs, labels, bins=bins, scheme="published"),
        "cece": metrics.classwise_ece(probs, labels, bins=bins, scheme="published"),
        "oece": halves.over,
        "uece": halves.under,
    }
    for name, value in single.items():
        assert value == pytest.approx(float(data[f"{name}{bins}"]), abs=2e-6), name
    double = {
        "aece_split": metrics.adaptive_ece(probs, labels, bins=bins),
        "list_ece": metrics.ece(probs, labels, bins=bins),
    }
    if path.stem != "edges_15":  # there the list evaluators put float32 edges into another bin than their own ECE
        double |= {
            "list_mce": metrics.mce(probs, labels, bins=bins),
            "list_ace": metrics.unweighted_ece(probs, labels, bins=bins),
            "list_l2": metrics.rms_calibration_error(probs, labels, bins=bins),
        }
    for name, value in double.items():
        assert value == pytest.approx(float(data[f"{name}{bins}"]), abs=1e-9), name
    assert metrics.brier(probs, labels) == pytest.approx(float(data["brier_sum"]), abs=1e-9)
    assert metrics.accuracy(probs, labels) == float(data["acc"])
    assert metrics.nll(probs, labels, floor=1e-300) == pytest.approx(float(data["nll"]), abs=1e-9)


# ---- by hand ----

THREE = np.array([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
THREE_LABELS = np.array([0, 1, 1])  # right, wrong, right


def test_three_rows_by_hand() -> None:
    assert metrics.accuracy(THREE, THREE_LABELS) == pytest.approx(2 / 3)
    assert metrics.balanced_accuracy(THREE, THREE_LABELS) == pytest.approx((1 + 0.5) / 2)
    # class 0: TP 1, FP 1, FN 0 -> 2/3; class 1: TP 1, FP 0, FN 1 -> 2/3
    assert metrics.macro_f1(THREE, THREE_LABELS) == pytest.approx(2 / 3)
    assert metrics.nll(THREE, THREE_LABELS) == pytest.approx(-(np.log(0.8) + np.log(0.4) + np.log(0.7)) / 3)
    assert metrics.brier(THREE, THREE_LABELS) == pytest.approx((2 * 0.04 + 2 * 0.36 + 2 * 0.09) / 3)
    # ten bins: .8 and .7 and .6 lie at the top of their bins; gaps -.2, +.6, -.3
    assert metrics.ece(THREE, THREE_LABELS, bins=10) == pytest.approx((0.2 + 0.6 + 0.3) / 3)
    halves = metrics.over_under_ece(THREE, THREE_LABELS, bins=10)
    assert (halves.over, halves.under) == (pytest.approx(0.2), pytest.approx(0.5 / 3))
    assert metrics.mce(THREE, THREE_LABELS, bins=10) == pytest.approx(0.6)
    # order by confidence: right, right, wrong -> risks 0, 0, 1/3
    assert metrics.aurc(THREE, THREE_LABELS) == pytest.approx(1 / 9)
    assert metrics.auroc(THREE, THREE_LABELS) == 1.0
    assert metrics.selective_accuracy(THREE, THREE_LABELS, coverage=2 / 3) == 1.0


def test_a_confidence_on_an_edge_belongs_to_the_bin_below() -> None:
    # Two bins. .5 (right) lies in (0, .5], .75 (wrong) in (.5, 1]: gaps -.5 and .75. In one bin they would cancel.
    probs = np.array([[0.5, 0.5], [0.75, 0.25]])
    assert metrics.ece(probs, [0, 1], bins=2) == pytest.approx((0.5 + 0.75) / 2)


def test_equal_scores_count_half_in_auroc() -> None:
    # Right: .9 and .7; wrong: .7. Pairs: .9 > .7 counts 1, .7 = .7 counts 1/2.
    probs = np.array([[0.9, 0.1], [0.7, 0.3], [0.7, 0.3]])
    assert metrics.auroc(probs, [0, 0, 1]) == pytest.approx(0.75)


def test_a_weight_of_two_is_a_row_given_twice() -> None:
    rng = np.random.default_rng(3)
    probs = rng.dirichlet([0.5] * 4, 60)
    labels = rng.integers(0, 4, 60)
    weights = rng.integers(0, 4, 60).astype(float)
    twice = np.repeat(np.arange(60), weights.astype(int))
    for name in ("accuracy", "balanced_accuracy", "macro_f1", "nll", "brier", "ece", "classwise_ece", "mce",
                 "rms_calibration_error", "unweighted_ece", "smooth_ece", "auroc", "aurc"):  # fmt: skip
        function = getattr(metrics, name)
        kept = weights > 0  # rows of weight 0 may still occupy an otherwise empty bin
        weighted = function(probs[kept], labels[kept], weights=weights[kept])
        # Within a repeated row risk is averaged over its copies, so AURC alone differs, by the order of 1/N.
        assert weighted == pytest.approx(function(probs[twice], labels[twice]), abs=0.02 if name == "aurc" else 1e-12)


def test_brier_parts_sum_to_the_score() -> None:
    rng = np.random.default_rng(4)
    probs, labels = rng.dirichlet([1.0] * 5, 200), rng.integers(0, 5, 200)
    parts = metrics.brier_decomposition(probs, labels)
    total = parts.reliability - parts.resolution + parts.uncertainty + parts.within
    assert total == pytest.approx(metrics.brier(probs, labels), abs=1e-12)
    assert parts.reliability > 0.01  # labels that ignore the probabilities


def test_row_order_changes_nothing_even_with_ties() -> None:
    rng = np.random.default_rng(5)
    probs = np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]])[rng.integers(0, 3, 400)]
    labels = rng.integers(0, 2, 400)
    mixed = rng.permutation(400)
    for function in (metrics.aurc, metrics.auroc, metrics.ece, metrics.smooth_ece, metrics.selective_accuracy):
        assert function(probs, labels) == pytest.approx(function(probs[mixed], labels[mixed]), abs=1e-12)


def test_confidence_one_lies_in_the_last_bin_and_zero_in_the_first() -> None:
    probs = np.array([[1.0, 0.0]] * 10)
    labels = np.array([0] * 6 + [1] * 4)
    assert metrics.ece(probs, labels) == pytest.approx(0.4)
    assert metrics.adaptive_ece(probs, labels) == pytest.approx(0.4)
    assert metrics.classwise_ece(probs, labels) == pytest.approx(0.4)  # the published evaluator drops p = 0: 0.2
    assert metrics.nll(probs, labels) == float("inf")


def test_one_row_and_one_class_are_defined() -> None:
    assert metrics.ece(np.array([[0.7, 0.3]]), [0]) == pytest.approx(0.3)
    assert metrics.debiased_ece(np.array([[0.7, 0.3]]), [0]) == pytest.approx(0.3)
    assert np.isnan(metrics.auroc(np.array([[0.7, 0.3]]), [0]))
    one = np.ones((4, 1))
    zero = np.zeros(4, int)
    assert (metrics.accuracy(one, zero), metrics.ece(one, zero), metrics.nll(one, zero)) == (1.0, 0.0, 0.0)


def test_top_k_counts_the_lower_class_first_among_equals() -> None:
    probs = np.array([[0.4, 0.3, 0.3]] * 2)
    assert metrics.top_k_accuracy(probs, [1, 2], k=2) == 0.5


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        (np.array([[2.0, -1.0]]), [0], "logits"),
        (np.array([[3.0, 1.0]]), [0], "do not sum to one"),
        (np.array([[0.5, 0.45]]), [0], "do not sum to one"),
        (np.array([[np.nan, 0.5]]), [0], "NaN"),
        (np.array([[0.5, 0.5]]), [2], "labels contain 2"),
        (np.array([[0.5, 0.5]]), [-1], "labels contain -1"),
        (np.array([[0.5, 0.5]]), [0.5], "whole numbers"),
        (np.array([0.5, 0.5]), [0, 1], "shape"),
        (np.zeros((0, 2)), [], "no rows"),
    ],
)
def test_what_cannot_be_measured_is_refused(probs: np.ndarray, labels: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        metrics.ece(probs, labels)


def test_bad_bins_and_weights_are_refused() -> None:
    with pytest.raises(CalibrantError, match="bins"):
        metrics.ece(THREE, THREE_LABELS, bins=0)
    with pytest.raises(DataError, match="weights"):
        metrics.ece(THREE, THREE_LABELS, weights=[1, -1, 1])
    with pytest.raises(DataError, match="weights"):
        metrics.ece(THREE, THREE_LABELS, weights=[0, 0, 0])


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
