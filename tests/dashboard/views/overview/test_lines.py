"""The lines of the overview: their numbers, and what a click opens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import read_predictions

from ..conftest import Page, frame


def test_each_run_has_a_line_with_its_accuracy(page: Page, folder: Path) -> None:
    lines = frame(page("overview", folder, **{"as": "table"}), "ECE before (%)").set_index("Name")
    for name in ("leaves", "fedlas"):
        data = read_predictions(folder / name / "predictions/test.parquet")
        assert lines.loc[name, "Accuracy (%)"] == pytest.approx(100 * np.mean(data.logits.argmax(1) == data.labels))
        assert lines.loc[name, "Rows"] == len(data)
        assert lines.loc[name, "Epochs"] == 6
    assert lines.loc["fedlas", "Formula"] == "network alone"
    assert lines.loc["fedlas", "ECE (%)"] == lines.loc["fedlas", "ECE before (%)"]
    assert lines.loc["leaves", "T"] > 1
    assert lines.loc["leaves", "Loss"] == "vace"


def test_a_deployed_file_is_measured_on_the_rows_of_its_own_weights(page: Page, folder: Path) -> None:
    lines = frame(page("overview", folder, **{"as": "table"}), "Formula").set_index("Name")
    row = lines.loc["leaves/model.onnx"]
    assert (row["Formula"], row["Predictions"], row["T"], row["Rows"]) == ("deployed file", "test", 2.0, 400)


def test_any_two_numbers_make_a_scatter(page: Page, folder: Path) -> None:
    drawn = page("overview", folder, across="Accuracy (%)", up="NLL", **{"as": "scatter"})
    assert (drawn.selectbox(key="across").value, drawn.selectbox(key="up").value) == ("Accuracy (%)", "NLL")
