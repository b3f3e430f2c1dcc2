"""The band of a reliability diagram where bins hold few rows, and what the calibration package loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from calibrant.calibration.diagrams.reliability import diagram_of_bins
from calibrant.calibration.statistics.bins import Bins

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("n", "c"), [(1, 0.4), (5, 0.9), (12, 0.5), (29, 0.13), (29, 1.0), (7, 0.0)])
def test_band_of_few_rows_is_the_binomial_s_central_part(n: int, c: float) -> None:
    from scipy.stats import binom

    table = Bins(np.array([n]), np.array([float(n)]), np.array([c * n]), np.array([round(c * n)], float))
    diagram = diagram_of_bins(table)
    assert diagram.band_low[0] == pytest.approx(max(float(binom.ppf(0.025, n, c)), 0.0) / n, abs=1e-12)
    assert diagram.band_high[0] == pytest.approx(float(binom.ppf(0.975, n, c)) / n, abs=1e-12)


def test_an_evaluation_does_not_load_scipy_stats() -> None:
    """It costs 70 MB, which a server with many readers pays all the time."""
    code = """
import sys, numpy as np
from calibrant.calibration import evaluate
from calibrant.calibration.diagrams.reliability import reliability_diagram
from calibrant.calibration.statistics.accumulate import statistics_of
rng = np.random.default_rng(0)
z, y = rng.normal(size=(200, 4)), rng.integers(0, 4, 200)
s = statistics_of(z, y)
evaluate(s); reliability_diagram(s, 40)
print("scipy.stats" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "False"
