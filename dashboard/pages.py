"""Pages by address, and what happens when one cannot be drawn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import streamlit as st

from calibrant.dashboard import settings
from calibrant.dashboard.folder.artifacts import FolderIndex
from calibrant.dashboard.folder.index import scan
from calibrant.dashboard.views import laboratory, reliability, training, tryit
from calibrant.dashboard.views.decide import page as decide
from calibrant.dashboard.views.overview import page as overview
from calibrant.dashboard.views.production import page as production
from calibrant.dashboard.widgets import go
from calibrant.dashboard.widgets.elements import said
from calibrant.errors import CalibrantError

log = logging.getLogger(__name__)

# address: (title, function); the first is the start page. No icons: the browser would fetch a page's icon, as the
# picture of its tab, from a font server far away.
PAGES: dict[str, tuple[str, Callable[[FolderIndex], None]]] = {
    "overview": ("Overview", overview.render),
    "reliability": ("Reliability", reliability.render),
    "decide": ("Decide", decide.render),
    "training": ("Training", training.render),
    "laboratory": ("Laboratory", laboratory.render),
    "try": ("Try it", tryit.render),
    "production": ("Production", production.render),
}


START = "overview"


def navigation() -> Any:
    pages = [
        st.Page(_guarded(render), title=title, url_path=f"start-{address}", default=True)
        if address == START
        else st.Page(_guarded(render), title=title, url_path=address)
        for address, (title, render) in PAGES.items()
    ]
    go.register(dict(zip(PAGES, pages, strict=True)))
    # Streamlit serves its start page at "/" only; the address that it would have is one too.
    title, render = PAGES[START]
    again = st.Page(_guarded(render), title=title, url_path=START, visibility="hidden")
    return st.navigation([*pages, again], position="top")


def _guarded(render: Callable[[FolderIndex], None]) -> Callable[[], None]:
    """The page; what a file can cause becomes a message on it, and the other pages go on."""

    def page() -> None:
        try:
            render(scan(settings.current().root))
        except CalibrantError as error:
            st.error(said(error), icon=":material/error:")
        except OSError as error:
            log.warning("a file could not be read", exc_info=True)
            st.error(f"A file could not be read: {said(error.strerror or error)}", icon=":material/error:")

    return page
