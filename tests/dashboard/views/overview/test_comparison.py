"""Compared runs: mean ranks by hand, and the difference on the same rows."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import read_predictions
from calibrant.calibration import Measured
from calibrant.dashboard.numbers.measures import Summary
from calibrant.dashboard.views.overview.comparison import ranks

from ..conftest import Page, frame, words


def line(accuracy: float, nll: float, ece: float, after: float | None) -> Summary:
    return Summary(100, 100.0, Measured(accuracy), accuracy, nll, Measured(ece), None, after and Measured(after), None)


def test_ranks_count_from_the_best_and_ties_share_their_places() -> None:
    table = ranks({
        "a": line(0.9, 1.0, 0.05, 0.02), "b": line(0.8, 0.5, 0.05, 0.01), "c": line(0.7, 2.0, 0.10, 0.03),
    })  # fmt: skip
    assert table["Run"].tolist() == ["a", "b", "c"]  # equal mean ranks stay in order
    by_run = table.set_index("Run")
    assert by_run["Rank: Accuracy (%)"].to_dict() == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert by_run["Rank: NLL"].to_dict() == {"a": 2.0, "b": 1.0, "c": 3.0}
    assert by_run["Rank: ECE (%)"].to_dict() == {"a": 1.5, "b": 1.5, "c": 3.0}
    # Accuracy, balanced accuracy (the same here), NLL, ECE, ECE after.
    assert by_run["Mean rank"].to_dict() == {"a": (1 + 1 + 2 + 1.5 + 2) / 5, "b": (2 + 2 + 1 + 1.5 + 1) / 5, "c": 3.0}
    assert by_run.loc["a", "Accuracy (%)"] == 90.0


def test_a_number_that_one_run_lacks_is_shown_but_not_ranked() -> None:
    table = ranks({"a": line(0.9, 1.0, 0.05, None), "b": line(0.8, 0.5, 0.06, 0.01)})
    assert "ECE after (%)" in table
    assert "Rank: ECE after (%)" not in table


def test_two_runs_on_the_same_rows_are_compared_row_by_row(page: Page, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "fedlas", tmp_path / "one")
    data = read_predictions(tmp_path / "one/predictions/test.parquet")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    wrong = replace(data, logits=np.roll(data.logits, 1, axis=1))
    wrong.write(tmp_path / "two/predictions/test.parquet")
    table = frame(page("overview", tmp_path, compare="one|two"), "Second minus first").set_index("Number")
    before, after = (100 * np.mean(d.logits.argmax(1) == d.labels) for d in (data, wrong))
    line = table.loc["Accuracy (%)"]
    assert (line["First run"], line["Second run"]) == pytest.approx((before, after))
    assert line["Second minus first"] == pytest.approx(after - before)
    assert line["95 % from"] < after - before < line["to"] < 0
    assert line["Clear"] == "yes"


def test_runs_on_different_rows_are_not(page: Page, folder: Path) -> None:
    assert "not measured on the same rows" in words(page("overview", folder, compare="fedlas|leaves"))
