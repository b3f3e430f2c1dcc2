"""Class-wise ECE: two classes are one, rows tie more of them together, and 2 / C is the most there is."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.evaluation import evaluate
from calibrant.calibration.intervals.binned import measure_gaps
from calibrant.calibration.intervals.classwise import (
    cells_of,
    class_ratios,
    dependence,
    measure_classwise,
    null_dependence,
    variance_of_distance,
)
from calibrant.calibration.intervals.gaps import GapSample
from calibrant.calibration.metrics.table import METRICS
from calibrant.calibration.softmax import softmax
from calibrant.calibration.statistics.accumulate import statistics_of, statistics_of_probabilities
from calibrant.calibration.statistics.bins import equal_width, equal_width_index
from calibrant.calibration.statistics.reservoir import SampledRows


def made(rows: int, classes: int, sharpness: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(rows, classes))
    labels = (softmax(z).cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    return sharpness * z, labels


def test_of_two_classes_the_cells_of_one_are_the_experiment() -> None:
    z, labels = made(500, 2, 1.5)
    found = measure_classwise(statistics_of(z, labels), 15)
    p = softmax(z)[:, 1]
    table = equal_width(p, labels == 1, 15)
    index = equal_width_index(p, 15)
    spread = np.bincount(index, p * p, 15) / np.maximum(table.weight, 1) - table.confidence**2
    alone = measure_gaps(GapSample.of(table, None, spread), "sum")
    assert found.low == pytest.approx(alone.low, abs=1e-4)
    assert found.high == pytest.approx(alone.high, abs=1e-4)
    assert found.value == pytest.approx(alone.value, abs=1e-9)


@pytest.mark.parametrize(("rows", "classes"), [(2, 10), (30, 100), (30, 300), (300, 10)])
def test_nothing_beyond_two_over_the_classes(rows: int, classes: int) -> None:
    found = measure_classwise(statistics_of(*made(rows, classes, 3.0)), 15)
    assert found.high is not None
    assert 0 <= (found.low or 0) <= (found.true_error or 0) <= found.high <= 2 / classes + 1e-12
    assert found.largest == pytest.approx(2 / classes)


def test_thirty_rows_of_three_hundred_classes_tell_nothing_and_that_is_said() -> None:
    assert not measure_classwise(statistics_of(*made(30, 300, 2.0)), 15).told
    assert measure_classwise(statistics_of(*made(3000, 10, 2.0)), 15).told


def test_how_often_classes_occur_beyond_their_claims_is_told_from_chance() -> None:
    """Claims of .5 on 1,000 rows: 750 and 250 hits have ratios near 1.5 and .5, 510 and 490 are chance."""

    def of(hits: tuple[int, int]) -> GapSample:
        gap = 0.5 - np.array(hits) / 1000
        return GapSample(np.full(2, 0.5), np.full(2, 0.5), gap, np.full(2, 1000.0), np.zeros(2))

    found = class_ratios(of((750, 250)), np.array([0, 1]), 4000)
    assert found is not None
    ratio, log = found
    a = 1 / ((250**2 - 500) / 500**2)
    np.testing.assert_allclose(ratio, [(750 + a) / (500 + a), (250 + a) / (500 + a)])
    np.testing.assert_allclose(log.std(axis=0), 1 / np.sqrt(np.array([750, 250]) + a), rtol=0.05)  # se 1.1 %
    np.testing.assert_allclose(np.exp(log).mean(axis=0), 1, atol=0.005)
    assert class_ratios(of((510, 490)), np.array([0, 1]), 10) is None


def test_rare_classes_have_a_say_in_how_far_classes_lie_from_their_claims() -> None:
    """Classes of 900, 50 and 50 claimed rows; the common one occurs as claimed, the rare ones half again and half."""
    rows = np.array([1800.0, 100.0, 100.0])
    p, hits = np.full(3, 0.5), np.array([900, 75, 25])
    found = class_ratios(GapSample(rows / 2000, p, p - hits / rows, rows, 0 * p), np.arange(3), 10)
    assert found is not None  # each class by the square of its size: less than chance would show
    each = np.array([-900 / 901, (625 - 50) / 51, (625 - 50) / 51])
    variance = each.sum() / (900**2 / 901 + 2 * 50**2 / 51)
    assert found[0][1] == pytest.approx((75 + 1 / variance) / (50 + 1 / variance))


def test_one_row_has_no_interval_of_anything_binned() -> None:
    found = evaluate(np.array([[0.7, 0.2, 0.1]]), [0]).metrics
    names = {m.key for m in METRICS if "ece" in m.key} - {"debiased_ece"} | {"mce", "rms_calibration_error"}
    assert {name: (found[name].low, found[name].high) for name in names} == dict.fromkeys(names, (None, None))


def test_f_of_rows_in_which_two_classes_always_err_together_is_two() -> None:
    """Claims of .5 on two classes, one of which is right: p - y is -.5 and .5, one error counted twice."""
    probs = np.tile(np.array([0.5, 0.5, 0.0]), (400, 1)).astype(np.float16)
    labels = np.random.default_rng(0).integers(0, 2, 400).astype(np.int32)
    full = np.zeros((3, 15), bool)
    full[:2, 7], full[2, 0] = True, True
    opposite = np.tile(np.array([0.001, -0.001, 1e-9]), (50, 1))  # plausible gaps of the three cells, signs as known
    rows = SampledRows(np.arange(400, dtype=np.uint64), labels, probs)
    assert dependence(rows, opposite, full) == pytest.approx(2.0, abs=0.02)


def test_labels_of_two_sure_pairs_vary_twice_as_much_as_independent_cells() -> None:
    # |p - y| of both classes is one number: Var(2 |x|) against 2 Var(|x|)
    p = np.tile(np.array([0.5, 0.5], np.float32), (300, 1))
    found = null_dependence(p, cells_of(p, 15), 30, draws=4000)
    assert found == pytest.approx(2.0, abs=0.15)  # standard error of a ratio of variances: 2 sqrt(2 * 2 / 4000) = .06


def test_rows_that_differ_in_the_seventh_digit_have_the_same_interval() -> None:
    """As those of a run and of the file that was exported from it: the sample's order differs, its chance must not."""
    z, labels = made(600, 10, 1.0)
    one = measure_classwise(statistics_of(z, labels), 15)
    two = measure_classwise(statistics_of(z + 1e-7 * np.random.default_rng(1).normal(size=z.shape), labels), 15)
    for a, b in ((one.true_error, two.true_error), (one.low, two.low), (one.high, two.high)):
        assert a == pytest.approx(b, abs=5e-5)


def test_the_variance_of_a_distance_by_hand() -> None:
    # n = 2, p = .25: |K - .5| is .5 for K = 0 and 1, 1.5 for K = 2 (1/16): mean .5625, of squares .25 + 2 / 16
    found = variance_of_distance(np.array([2.0, 3.0, 5.0]), np.array([0.5, 0.0, 5.0]))
    assert found == pytest.approx([0.375 - 0.5625**2, 0.0, 0.0])
    # n = 4, p = .5: distances 0, 1, 2 with probabilities 6, 8, 2 of 16
    assert variance_of_distance(np.array([4.0]), np.array([2.0])) == pytest.approx([1.0 - 0.75**2])


def test_a_cell_is_the_class_and_the_bin() -> None:
    p = np.array([[0.0, 1.0], [1 / 15, 0.5], [0.067, 0.9999]], np.float32)
    assert cells_of(p, 15).tolist() == [[0, 29], [0, 22], [1, 29]]


def test_the_measured_value_is_said_to_be_mostly_noise_for_a_calibrated_model() -> None:
    found = measure_classwise(statistics_of(*made(1000, 10, 1.0)), 15)
    assert found.true_error is not None
    assert found.true_error < found.value / 2
    assert found.chance == pytest.approx(found.value - found.true_error)
    assert "true_error" in found.to_dict()
    p = softmax(made(1000, 10, 1.0)[0])
    assert statistics_of_probabilities(p, made(1000, 10, 1.0)[1]).sampled is not None
