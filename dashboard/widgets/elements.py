"""What every page uses to put something on the screen: a chart with its downloads, troubles, a percentage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from calibrant.dashboard import settings
from calibrant.dashboard.draw import charts, downloads
from calibrant.dashboard.folder.files import Trouble
from calibrant.dashboard.theme import Palette, palette
from calibrant.dashboard.widgets import glossary
from calibrant.dashboard.widgets.folder_names import without_folders
from calibrant.dashboard.widgets.markdown_escape import plain, short

_ROWS_AT_ONCE = 24  # of a table; a longer one scrolls in itself


def colours() -> Palette:
    """Of the theme that the reader sees."""
    return palette(st.context.theme.type)


def title(text: str) -> None:
    """With what the short words of the pages mean beside it."""
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.title(text, width="content")
        glossary.offer()


def drawing(drawn: Any, *, alt: str, key: str, select: str | None = None) -> Any:
    """The chart on the page. With `select`, a click on a mark reruns the page and is returned."""
    seen = colours()
    extra: dict[str, Any] = {} if select is None else {"on_select": "rerun", "selection_mode": select}
    # Streamlit's own chart theme would win over the colours of ours.
    return st.altair_chart(charts.finished(drawn, seen), theme=None, width="stretch", key=key, alt=alt, **extra)


def chart(name: str, table: pd.DataFrame, draw: downloads.Draw, *, alt: str, key: str) -> None:
    """A chart and a button for its files."""
    drawing(draw(colours=colours()), alt=alt, key=key)
    downloads.offer(name, table, draw)


def table(
    frame: pd.DataFrame,
    *,
    key: str,
    columns: Mapping[str, Any] | None = None,
    download: str | None = None,
    select: bool = False,
) -> int | None:
    """A table with the meaning of its columns, and its numbers as a file, one touch away. With `select`, the row that
    was clicked, once."""
    meant = {name: str(c.get("help")) for name, c in (columns or {}).items() if name in frame and c and c.get("help")}
    extra: dict[str, Any] = {"on_select": "rerun", "selection_mode": "single-row"} if select else {}
    event: Any = st.dataframe(
        frame,
        hide_index=True,
        width="stretch",
        height="auto" if len(frame) > _ROWS_AT_ONCE else "content",
        key=key,
        column_config=dict(columns or {}),
        placeholder="–",
        **extra,
    )
    with st.container(horizontal=True, gap="small"):
        if download is not None:
            downloads.offer(download, frame)
        if meant:
            with st.popover("Columns", icon=":material/help:", type="tertiary", key=f"columns-{key}"):
                for name, text in meant.items():
                    st.markdown(f"**{plain(name)}**: {text}")
    rows = event.selection.rows if select and event is not None else []
    if not rows or st.session_state.get(f"clicked:{key}") == rows[0]:
        return None
    st.session_state[f"clicked:{key}"] = rows[0]
    return int(rows[0])


def troubles(found: Sequence[Trouble]) -> None:
    """One line for each of the first few; the rest in a fold."""
    for trouble in found[:3]:
        st.warning(_line(trouble), icon=":material/warning:")
    if len(found) > 3:
        with st.expander(f"{len(found) - 3} more files could not be used"):
            for trouble in found[3:103]:
                st.markdown(_line(trouble))
            if len(found) > 103:
                st.markdown(f"and {len(found) - 103:,} more")


def _line(trouble: Trouble) -> str:
    text = f"**{plain(short(trouble.where, 80))}** {said(trouble.what)}"
    return f"{text}. {said(trouble.fix[:1].upper() + trouble.fix[1:])}." if trouble.fix else f"{text}."


def said(message: object, length: int = 1000) -> str:
    """A message of a command or an error as it may stand on a page: as plain text, no folder of this machine in it."""
    here = settings.current()
    return plain(short(without_folders(str(message), (here.root, *here.images)), length))


def command(root: Path, line: str) -> None:
    """A command with paths as seen from the folder of the runs."""
    st.markdown(f"In the folder **{plain(root.name)}**:")
    st.code(line, language="bash", wrap_lines=True)


def percent(value: float | None, digits: int = 2) -> str:
    # Adding 0 turns a rounded -0.00 into 0.00.
    return "–" if value is None else f"{round(100 * value, digits) + 0.0:.{digits}f} %"


def count(value: int) -> str:
    return f"{value:,}"
