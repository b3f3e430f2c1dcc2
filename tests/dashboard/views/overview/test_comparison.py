"""Compared runs: like with like only, mean ranks by hand, and the difference on the same rows."""

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


def line(accuracy: float, balanced: float, nll: float, ece: float) -> Summary:
    return Summary(100, 100.0, Measured(accuracy), balanced, nll, Measured(ece), None, None, None)


def test_ranks_count_from_the_best_ties_share_their_places_and_ece_has_none() -> None:
    table = ranks({
        "a": line(0.9, 0.6, 1.0, 0.05), "b": line(0.8, 0.6, 0.5, 0.0), "c": line(0.7, 0.1, 2.0, 0.10),
    })  # fmt: skip
    by_run = table.set_index("Run")
    assert by_run["Rank: Accuracy (%)"].to_dict() == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert by_run["Rank: Balanced accuracy (%)"].to_dict() == {"a": 1.5, "b": 1.5, "c": 3.0}
    assert by_run["Rank: NLL"].to_dict() == {"a": 2.0, "b": 1.0, "c": 3.0}
    assert by_run["Mean rank"].to_dict() == {"a": 1.5, "b": 1.5, "c": 3.0}
    assert by_run.loc["a", "ECE (%)"] == 5.0
    assert "Rank: ECE (%)" not in table


def test_what_was_measured_on_other_rows_is_not_ranked() -> None:
    table = ranks({"a": line(0.9, 0.6, 1.0, 0.05), "b": line(0.8, 0.6, 0.5, 0.0)}, alike=False)
    assert [c for c in table if "ank" in c] == []
    assert table["Run"].tolist() == ["a", "b"]


def test_two_runs_on_the_same_rows_are_compared_row_by_row(page: Page, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "fedlas", tmp_path / "one")
    data = read_predictions(tmp_path / "one/predictions/test.parquet")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    wrong = replace(
        data, logits=np.roll(data.logits, 1, axis=1), source=replace(data.source, model={"sha256": "others"})
    )
    wrong.write(tmp_path / "two/predictions/test.parquet")
    table = frame(page("overview", tmp_path, compare="one|two"), "Second minus first").set_index("Number")
    before, after = (100 * np.mean(d.logits.argmax(1) == d.labels) for d in (data, wrong))
    row = table.loc["Accuracy (%)"]
    assert (row["First run"], row["Second run"]) == pytest.approx((before, after))
    assert row["Second minus first"] == pytest.approx(after - before)
    assert row["95 % from"] < after - before < row["to"] < 0
    assert row["Clear"] == "yes"


def test_runs_on_different_rows_say_so(page: Page, folder: Path) -> None:
    drawn = page("overview", folder, compare="fedlas|leaves")
    assert "not measured on the same rows" in words(drawn)
    assert not any("Mean rank" in d.value for d in drawn.dataframe)
