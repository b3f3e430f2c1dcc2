"""Every chart as PNG and SVG, its numbers as CSV. Made only when asked for, on this machine, in the light theme.

A chart of the dark page on a white sheet would be light grey on white, so the file does not follow the page.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable
from functools import partial
from typing import Protocol

import altair as alt
import pandas as pd
import streamlit as st

from calibrant.dashboard.draw.charts import finished
from calibrant.dashboard.theme import LIGHT, Palette


class Draw(Protocol):
    def __call__(self, *, colours: Palette) -> alt.TopLevelMixin: ...


FILE_WIDTH = 560
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def offer(name: str, table: pd.DataFrame, draw: Draw | None = None) -> None:
    """A button that opens the formats. `draw` makes the chart in the colours that it is given."""
    stem = file_stem(name)
    key = f"{stem}-{zlib.crc32(name.encode()):08x}"  # "a/b" and "a-b" are one file name but two buttons
    with st.popover("Download", icon=":material/download:", type="tertiary", key=f"download-{key}"):
        if draw is not None:
            for kind, mime in (("png", "image/png"), ("svg", "image/svg+xml")):
                _button(
                    f"Chart as {kind.upper()}", partial(picture, draw, kind), f"{stem}.{kind}", mime, f"{key}-{kind}"
                )
        _button("Numbers as CSV", partial(csv_bytes, table), f"{stem}.csv", "text/csv", f"{key}-csv")


def _button(label: str, make: Callable[[], bytes], file: str, mime: str, key: str) -> None:
    st.download_button(label, data=make, file_name=file, mime=mime, on_click="ignore", key=key, width="stretch")


def picture(draw: Draw, kind: str) -> bytes:
    import vl_convert

    chart = finished(draw(colours=LIGHT), LIGHT).properties(background=LIGHT.background)
    if isinstance(chart, alt.LayerChart):  # the page stretches it; a file needs a width
        chart = chart.properties(width=FILE_WIDTH)
    spec = chart.to_dict()
    if kind == "svg":
        return str(vl_convert.vegalite_to_svg(spec)).encode()
    return bytes(vl_convert.vegalite_to_png(spec, scale=2))


def csv_bytes(table: pd.DataFrame) -> bytes:
    """UTF-8 with a mark that spreadsheets look for; text that a spreadsheet would run as a formula is quoted."""
    safe = pd.DataFrame({name: [_inert(v) for v in table[name]] for name in table.columns})
    buffer = io.StringIO()
    safe.to_csv(buffer, index=False, lineterminator="\n")
    return ("\ufeff" + buffer.getvalue()).encode()


def _inert(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def file_stem(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:80] or "calibrant"
