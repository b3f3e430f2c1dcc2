"""The training log as a table, and where each run stands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibrant.dashboard.views.training import table_of

from ..conftest import write_run
from .conftest import Page, frame


def test_nested_names_are_joined_and_the_later_line_of_an_epoch_wins() -> None:
    table = table_of(
        [
            {"epoch": 2, "val": {"nll": 1.0}, "lr": 0.1},
            {"epoch": 1, "val": {"nll": 2.0}, "lr": 0.2},
            {"epoch": 2, "val": {"nll": 0.5}, "lr": 0.1},  # of a run that was resumed
            {"epoch": True, "val": {"nll": 9.0}},
            {"note": "no epoch"},
        ]
    )
    assert table["epoch"].tolist() == [1, 2]
    assert table["val.nll"].tolist() == [2.0, 0.5]


def test_a_run_stands_at_its_best_epoch(page: Page, folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "leaves/metrics.jsonl").read_text().splitlines()]
    best = next(line for line in lines if line["best"])
    row = frame(page("training", folder, runs="leaves"), "Best epoch").iloc[0]
    assert (row["Epochs"], row["Best epoch"]) == (6, best["epoch"]) == (6, 5)
    assert row["Accuracy (%)"] == pytest.approx(100 * best["val"]["accuracy"])
    assert row["Minutes"] == pytest.approx(6 * 4.5 / 60)


def test_only_the_chosen_runs_are_drawn(page: Page, folder: Path) -> None:
    assert frame(page("training", folder, runs="fedlas"), "Best epoch")["Run"].tolist() == ["fedlas"]
    headings = [s.value for s in page("training", folder, runs="fedlas").subheader]
    assert "FeDLaS gate" in headings
    assert "VACE class temperatures" not in headings


def test_runs_that_follow_the_validation_set_are_shown_first_and_one_without_epochs_is_no_unfinished_one(
    page: Page, tmp_path: Path
) -> None:
    for name in ("a-solved", "b-head", "c", "d"):
        write_run(tmp_path / name, rows=60)
    (tmp_path / "a-solved/metrics.jsonl").write_text("")
    (tmp_path / "b-head/metrics.jsonl").write_text('{"epoch": 1, "train_loss": 0.5}\n')
    drawn = page("training", tmp_path)
    assert drawn.multiselect(key="runs").value == ["c", "d"]
    drawn = page("training", tmp_path, runs="a-solved|b-head")
    assert [i.value for i in drawn.info] == ["**a\\-solved** was fitted at once, without epochs."]
    assert not any("ring" in m.value or "dashed" in m.value for m in drawn.markdown)
