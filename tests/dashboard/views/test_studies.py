"""A study's table on the Training page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibrant.dashboard.views.studies import table_of, title_of

from .conftest import Page, frame, words


def estimate(mean: float, difference: float | None = None) -> dict[str, Any]:
    low, high = (None, None) if difference is None else (difference - 0.01, difference + 0.01)
    return {
        "mean": mean, "deviation": 0.02, "difference": difference, "low": low, "high": high, "rank": 1.5,
        "noise": "seeds", "rank_low": None, "rank_high": None, "mark": "",
    }  # fmt: skip


def study(finished: int) -> dict[str, Any]:
    lines = [
        {"method": "ce", "control": "", "estimates": {"ece": estimate(0.12), "nll": estimate(1.5)}, "measured": {}},
        {"method": "ls", "control": "fedlas", "estimates": {"ece": estimate(0.08, -0.04), "nll": estimate(1.4, -0.1)},
         "measured": {}},
    ]  # fmt: skip
    block = {"data": "birds", "network": "default", "view": "", "seeds": [1, 2], "images": 2864, "lines": lines}
    return {
        "kind": "study", "format_version": 1, "title": "Smoothing *here*", "scale": "tiny", "reference": "ce",
        "metrics": ["ece", "nll"], "blocks": [block, {**block, "view": "temperature"}], "finished": finished,
        "total": 4,
    }  # fmt: skip


def test_a_study_is_shown_by_metric_in_its_unit(page: Page, tmp_path: Path) -> None:
    (tmp_path / "smoothing").mkdir()
    (tmp_path / "smoothing" / "study.json").write_text(json.dumps(study(3)))
    drawn = page("training", tmp_path)
    shown = frame(drawn, "Control of")
    assert shown["Method"].tolist() == ["ce", "ls"]
    assert shown["Mean"].tolist() == [12.0, 8.0]
    assert (shown["Difference"][1], shown["From"][1], shown["To"][1]) == (-4.0, -5.0, -3.0)
    assert "Smoothing \\*here\\*" in words(drawn)
    assert "ECE (%) over 2 seeds and 2,864 test images" in words(drawn)
    assert [i.value for i in drawn.info] == ["Not finished: 3 of 4 runs."]
    assert drawn.selectbox(key="study-block").options == ["birds, as trained", "birds, + temperature"]
    other = page("training", tmp_path, **{"study-metric": "nll"})
    assert frame(other, "Control of")["Mean"].tolist() == [1.5, 1.4]


def test_a_table_that_is_none_is_refused_by_name(page: Page, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(json.dumps({"kind": "study", "blocks": [{}]}))
    with pytest.raises(AssertionError, match="is no table of a study"):
        page("training", tmp_path)


def test_metrics_without_a_record_are_percentages() -> None:
    block = study(4)["blocks"][0]
    block["lines"][0]["estimates"]["auroc_svhn"] = estimate(0.9)
    assert table_of({**block, "lines": block["lines"][:1]}, "auroc_svhn")["Mean"].tolist() == [90.0]
    assert title_of("auroc_svhn") == "Auroc svhn (%)"
