"""What the pictures of decisions are made of."""

from __future__ import annotations

import pandas as pd

from calibrant.dashboard.draw import decisions
from calibrant.dashboard.theme import LIGHT


def test_the_curve_has_its_band_the_wish_and_a_mark_for_each_line() -> None:
    row = {"threshold": 0.8, "share": 0.5, "error": 0.02, "low": 0.01, "high": 0.04}
    marks = pd.DataFrame([{"mark": decisions.HERE, **row}, {"mark": decisions.PROVEN, **row}])
    drawn = decisions.risk_coverage(pd.DataFrame([row, row]), marks, wished=0.05, colours=LIGHT).to_dict()
    assert [layer["mark"]["type"] for layer in drawn["layer"]] == ["area", "line", "rule", "point"]
    data = drawn["datasets"][drawn["layer"][2]["data"]["name"]]
    assert data == [{"error": 0.05}]


def test_a_confusion_can_be_clicked_and_the_diagonal_is_not_orange() -> None:
    table = pd.DataFrame([
        {"label": a, "answer": b, "rows": 3, "share": 0.5, "wrong": None if a == b else 0.5, "cell": f"{a}-{b}"}
        for a in "xy" for b in "xy"
    ]).astype({"wrong": float})  # fmt: skip
    drawn = decisions.confusion(table, names=["x", "y"], colours=LIGHT).to_dict()
    assert [p["name"] for p in drawn["params"]] == ["cell"]
    assert drawn["layer"][0]["mark"]["color"] == LIGHT.band
    assert drawn["layer"][1]["mark"]["color"] == LIGHT.over


def test_sizes_of_sets_are_bars() -> None:
    table = pd.DataFrame([{"size": 1, "share": 0.75, "rows": 3}, {"size": 2, "share": 0.25, "rows": 1}])
    drawn = decisions.set_sizes(table, colours=LIGHT).to_dict()
    assert drawn["layer"][0]["encoding"]["x"]["title"] == "Classes in the set"
