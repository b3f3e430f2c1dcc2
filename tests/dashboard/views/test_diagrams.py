"""The bins of the diagrams, and the rows behind one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from calibrant.calibration.diagrams.reliability import ReliabilityDiagram
from calibrant.dashboard.views.diagrams import table_of

from .conftest import Page, words
from .test_reliability import confidence_and_hits


def test_a_table_has_only_bins_with_rows_and_says_which_way_they_err() -> None:
    nothing = np.full(3, np.nan)
    rows = np.array([2, 0, 5])
    claims, right = np.array([0.2, np.nan, 0.9]), np.array([0.5, np.nan, 0.6])
    diagram = ReliabilityDiagram(
        low=np.array([0, 1 / 3, 2 / 3]), high=np.array([1 / 3, 2 / 3, 1]), rows=rows, share=rows / 7,
        confidence=claims, accuracy=right, accuracy_low=nothing, accuracy_high=nothing,
        band_low=np.array([0.1, np.nan, 0.7]), band_high=np.array([0.4, np.nan, 1.0]),
    )  # fmt: skip
    table = table_of(diagram)
    assert table["bin"].tolist() == [1, 3]
    assert table["verdict"].tolist() == ["under-confident", "over-confident"]
    inside = replace(diagram, band_low=np.array([0.1, np.nan, 0.6]), band_high=np.array([0.5, np.nan, 1.0]))
    assert table_of(inside)["verdict"].tolist() == ["what chance explains", "what chance explains"]


def test_a_bin_can_be_picked_and_has_the_rows_that_lie_in_it(page: Page, folder: Path) -> None:
    confidence, _ = confidence_and_hits(folder / "fedlas")
    low, high = int((confidence <= 0.5).sum()), int((confidence > 0.5).sum())
    drawn = page("reliability", folder, run="fedlas", bins="2", bin="before-2")
    assert drawn.selectbox(key="bin").options == [
        "none", f"before: 0.0–50.0 %, {low:,} rows", f"before: 50.0–100.0 %, {high:,} rows"
    ]  # fmt: skip
    assert f"{high} rows, confidence before calibration" in words(drawn)
