from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from calibrant.calibration import evaluate
from calibrant.calibration.monitoring.rolling import LabelledRow, rolling, rolling_ece
from calibrant.calibration.softmax import softmax

from .streams import stream


def test_a_labelled_row_by_hand() -> None:
    """p = (1/4, 3/4) and label 0: wrong, NLL log 4, entropy (log 4 + 3 log(4/3)) / 4."""
    row = LabelledRow.of(np.log([0.25, 0.75]), 0, covered=1.0)
    assert (row.confidence, row.correct, row.covered) == (pytest.approx(0.75), False, 1.0)
    assert row.nll == pytest.approx(math.log(4))
    assert row.entropy == pytest.approx((math.log(4) + 3 * math.log(4 / 3)) / 4)


def test_ece_by_hand() -> None:
    """Bins (0.4, 0.6] and (0.8, 1]: |1 - 0.55| / 3 + |(0 - 0.95) + (1 - 0.9)| / 3; within a bin gaps cancel."""
    got = rolling_ece(np.array([0.55, 0.94, 0.96]), np.array([1.0, 0.0, 1.0]))
    assert got.value == pytest.approx(0.45 / 3 + abs(0.94 + 0.96 - 1) / 3)


def test_accuracy_has_wilsons_interval_by_hand() -> None:
    """8 of 10: centre (0.8 + z^2/20) / (1 + z^2/10), half z sqrt(0.016 + z^2/400) / (1 + z^2/10)."""
    rows = [LabelledRow(0.7, n < 8, 0.3, 0.6) for n in range(10)]
    got = rolling(rows)
    assert got is not None
    assert (got.accuracy.low, got.accuracy.high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert got.accuracy.null == pytest.approx(0.7)  # the mean confidence, which perfect calibration would reach


def test_two_labels_have_figures_and_one_has_none() -> None:
    """NLL 0.1 and 0.9: mean 0.5, standard deviation 0.4 sqrt 2, so the half-width is 1.96 * 0.4."""
    first, second = LabelledRow(0.9, True, 0.1, 0.3), LabelledRow(0.6, False, 0.9, 0.7)
    assert rolling([first]) is None
    found = rolling([first, second])
    assert found is not None
    assert (found.nll.value, found.nll.null) == (pytest.approx(0.5), pytest.approx(0.5))
    assert found.nll.high == pytest.approx(0.5 + 1.959964 * 0.4)
    assert found.coverage is None  # no prediction sets


def test_the_figures_are_those_of_evaluate() -> None:
    """One interval and one null value, whoever prints them."""
    rng = np.random.default_rng(1)
    log_p, labels = stream(800, rng, sharper=1.5)
    got = rolling([LabelledRow.of(p, int(y), 1.0) for p, y in zip(log_p, labels, strict=True)])
    assert got is not None
    said = evaluate(np.exp(log_p), labels)
    for name in ("value", "low", "high", "null"):
        assert getattr(got.accuracy, name) == pytest.approx(getattr(said.metrics["accuracy"], name)), name
    for name in ("value", "low", "high", "null", "null_high"):
        assert getattr(got.ece, name) == pytest.approx(getattr(said.metrics["ece"], name), abs=2e-3), name
    assert got.nll.null == pytest.approx(said.metrics["nll"].null)
    assert got.coverage is not None
    assert got.coverage.value == 1.0


def test_a_serving_process_needs_no_scipy() -> None:
    code = (
        "import sys, numpy as np\n"
        "from calibrant.calibration.monitoring.rolling import rolling_ece\n"
        "from calibrant.calibration.monitoring.alarms import Alarms, Watch\n"
        "Alarms(3, Watch()); rolling_ece(np.full(50, 0.8), np.ones(50))\n"
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [m for m in loaded if m.split(".")[0] in ("scipy", "torch", "netcal", "pyarrow")] == []


@pytest.mark.slow
@pytest.mark.parametrize("rows", [100, 1000])
@pytest.mark.parametrize("sharpness", [1.0, 0.6, 1.6], ids=["calibrated", "over", "under"])
def test_the_interval_of_the_ece_holds_the_truth(sharpness: float, rows: int) -> None:
    """Streams from a population whose ECE is known. A right interval misses 20 of 200 or more in 0.3 %."""
    rng = np.random.default_rng([rows, int(10 * sharpness)])
    z = rng.normal(0, 2, (100_000, 10))
    top, confidence = z.argmax(axis=1), softmax(z).max(axis=1)
    right = softmax(sharpness * z)[np.arange(len(z)), top]
    truth = sum(
        abs((confidence - right)[(confidence > b / 15) & (confidence <= (b + 1) / 15)].sum()) for b in range(15)
    ) / len(z)
    held = 0
    for _ in range(200):
        drawn = rng.integers(0, len(z), rows)
        got = rolling_ece(confidence[drawn], (rng.random(rows) < right[drawn]).astype(np.float64))
        held += got.low <= truth <= got.high  # type: ignore[operator]
    assert held >= 181
