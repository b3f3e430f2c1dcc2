from __future__ import annotations

import io
import re
from functools import partial

import pandas as pd
import pytest
from PIL import Image

from calibrant.dashboard.draw import charts, downloads
from calibrant.dashboard.theme import DARK, LIGHT

TABLE = pd.DataFrame({"epoch": [1, 2], "value": [0.25, 0.5], "run": ["a", "a"]})
DRAW = partial(charts.lines, TABLE, x="epoch", y="value", series="run", title="Accuracy", order=["a"])


def test_csv_holds_the_numbers_in_full() -> None:
    table = pd.DataFrame({"class": ["é"], "ece": [1 / 3]})
    text = downloads.csv_bytes(table).decode("utf-8-sig")
    assert text == "class,ece\né,0.3333333333333333\n"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t"])
def test_a_name_that_a_spreadsheet_would_run_is_quoted(start: str) -> None:
    table = pd.DataFrame({"class": [f"{start}HYPERLINK(1)"], "gap": [-0.5]})
    text = downloads.csv_bytes(table).decode("utf-8-sig")
    assert f"'{start}HYPERLINK" in text
    assert "\n-0.5" not in text
    assert ",-0.5" in text


def test_svg_is_light_whatever_the_page_is_and_names_no_other_host() -> None:
    pytest.importorskip("vl_convert")
    svg = downloads.picture(DRAW, "svg").decode()
    assert svg.startswith("<svg")
    assert LIGHT.background.lower() in svg.lower()
    assert LIGHT.text.lower() in svg.lower()
    assert DARK.text.lower() not in svg.lower()
    assert "Accuracy" in svg
    assert set(re.findall(r"https?://[^\"' )]+", svg)) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_png_is_a_picture_of_the_width_that_was_asked_for() -> None:
    pytest.importorskip("vl_convert")
    image = Image.open(io.BytesIO(downloads.picture(DRAW, "png")))
    assert image.format == "PNG"
    assert image.size[0] > 2 * downloads.FILE_WIDTH
    assert image.convert("RGB").getpixel((1, 1)) == (255, 255, 255)


def test_file_names_are_harmless() -> None:
    assert downloads.file_stem("runs/a b:../<x>") == "runs-a-b-..-x"
    assert downloads.file_stem("///") == "calibrant"
