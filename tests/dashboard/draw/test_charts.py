"""The specifications of charts: what is drawn against what."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("altair", reason="altair is not installed: pip install '.[dashboard]'")

from calibrant.dashboard.draw import charts
from calibrant.dashboard.theme import DARK, LIGHT

TABLE = pd.DataFrame({
    "epoch": [1, 2, 1, 2], "value": [0.5, 0.6, 0.1, 0.2], "run": ["a", "a", "b", "b"],
})  # fmt: skip


def lines(**more: Any) -> dict[str, Any]:
    given = {"x": "epoch", "y": "value", "series": "run", "colours": LIGHT, "title": "Accuracy", "order": ["b", "a"]}
    drawn: dict[str, Any] = charts.lines(TABLE, **(given | more)).to_dict()
    return drawn


def test_series_keep_the_order_and_the_colours_of_the_page() -> None:
    for layer in lines()["layer"]:
        colour = layer["encoding"]["color"]["scale"]
        assert colour["domain"] == ["b", "a"]
        assert colour["range"] == list(LIGHT.series)
        assert (layer["encoding"]["x"]["field"], layer["encoding"]["y"]["field"]) == ("epoch", "value")


def test_one_series_needs_no_legend() -> None:
    assert lines(series=None, order=[])["layer"][0]["encoding"]["color"]["legend"] is None
    assert lines()["layer"][0]["encoding"]["color"]["legend"] is not None


def test_shares_are_written_in_percent() -> None:
    axis = lines(percent=True)["layer"][0]["encoding"]["y"]["axis"]
    assert axis["format"] == ".0%"  # from 0.1 to 0.6: whole points tell the marks apart
    assert lines()["layer"][0]["encoding"]["y"]["axis"]["format"] == "~g"


def test_a_finished_chart_has_the_fonts_and_colours_of_its_theme() -> None:
    drawn = charts.lines(TABLE, x="epoch", y="value", series="run", colours=DARK, title="t", order=["a", "b"])
    config = charts.finished(drawn, DARK).to_dict()["config"]
    assert config["axis"]["labelColor"] == DARK.text
    assert config["font"] == charts.FONT
    assert config["background"] == "transparent"


def test_times_within_a_minute_can_be_told_apart() -> None:
    converter = pytest.importorskip("vl_convert")
    times = pd.to_datetime(1_767_225_600 + pd.Series(range(0, 60, 5)), unit="s")
    table = pd.DataFrame({"from": times, "to": times + pd.Timedelta(seconds=5), "rows": 1})
    drawn = charts.columns(table, colours=LIGHT, x="from", x2="to", y="rows", title="Rows")
    svg = converter.vegalite_to_svg(charts.finished(drawn, LIGHT).to_json())
    clocks = re.findall(r">(\d\d:\d\d(?::\d\d)?)<", svg)
    assert len(clocks) > 2
    assert len(set(clocks)) == len(clocks)
