"""The lines of the overview: their numbers, and what a click opens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import read_predictions
from calibrant.dashboard.folder.index import scan
from calibrant.dashboard.numbers import subjects
from calibrant.dashboard.views.overview import lines

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


def test_a_folder_that_takes_long_says_how_far_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str | None] = []

    class Place:
        def progress(self, share: float, text: str) -> None:
            said.append(f"{share:.2f} {text}")

        def empty(self) -> None:
            said.append(None)

    monkeypatch.setattr(lines.st, "empty", Place)
    monkeypatch.setattr(lines, "_PATIENCE", 1e9)
    found = subjects.of_index(scan(folder))
    lines.measured(found, [])
    assert said == [None]  # a quick one says nothing
    monkeypatch.setattr(lines, "_PATIENCE", -1.0)
    lines.measured(found, [])
    assert said[1:3] == ["0.00 Measured 0 of 3: fedlas is next", "0.33 Measured 1 of 3: leaves is next"]
    assert said[-1] is None
