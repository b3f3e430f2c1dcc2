"""The specifications of reliability diagrams: which way a mark lies, and what it is told by."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("altair", reason="altair is not installed: pip install '.[dashboard]'")

from calibrant.dashboard.draw import diagrams
from calibrant.dashboard.theme import LIGHT

BINS = pd.DataFrame({
    "bin": [1, 2], "low": [0.0, 0.5], "high": [0.5, 1.0], "rows": [10, 30], "share": [0.25, 0.75],
    "confidence": [0.4, 0.9], "accuracy": [0.5, 0.7], "gap": [-0.1, 0.2], "accuracy_low": [0.3, 0.6],
    "accuracy_high": [0.7, 0.8], "band_low": [0.1, 0.8], "band_high": [0.7, 1.0],
    "verdict": ["under-confident", "over-confident"],
})  # fmt: skip


def layers(**more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = diagrams.reliability(BINS, colours=LIGHT, title="t", **more).to_dict()["layer"]
    return found


def test_confidence_lies_across_and_accuracy_up() -> None:
    marks = layers()[-1]["encoding"]
    assert (marks["x"]["field"], marks["y"]["field"]) == ("confidence", "accuracy")


def test_over_confident_is_an_orange_circle_under_confident_a_blue_diamond_and_chance_a_grey_square() -> None:
    marks = layers()[-1]["encoding"]
    assert marks["color"]["scale"] == {
        "domain": ["over-confident", "under-confident", "what chance explains"],
        "range": [LIGHT.over, LIGHT.under, LIGHT.neutral],
    }
    assert marks["shape"]["scale"]["domain"] == marks["color"]["scale"]["domain"]
    assert marks["shape"]["scale"]["range"] == ["circle", "diamond", "square"]


def test_edges_of_bins_are_told_where_the_bins_have_any() -> None:
    assert '"low"' in json.dumps(layers()[0])
    without = layers(edges=False)
    assert '"low"' not in json.dumps(without[0])
    assert "From" not in [t["title"] for t in without[-1]["encoding"]["tooltip"]]


def test_the_histogram_ends_where_it_is_told() -> None:
    bars = diagrams.histogram(BINS, colours=LIGHT, top=0.8).to_dict()["layer"][0]["encoding"]
    assert bars["y"]["scale"]["domain"] == [0, 0.8]
    assert bars["y"]["field"] == "share"
