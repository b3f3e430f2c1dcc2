"""Predictions of other tools, brought to the dashboard by hand: read as `calibrant import` reads them, and kept."""

from __future__ import annotations

import tempfile
from pathlib import Path

import streamlit as st

from calibrant.artifacts.foreign.formats import LIGHT_ENDINGS
from calibrant.artifacts.foreign.kinds import KINDS, Kind
from calibrant.artifacts.foreign.read import Asked, Foreign, read_foreign
from calibrant.dashboard.widgets import elements
from calibrant.errors import CalibrantError

FOLDER = "uploaded"
_UNSAID = "tell from the values"
_KINDS: dict[str, Kind | None] = {_UNSAID: None} | {k: k for k in KINDS}


def offer(root: Path) -> None:
    """A fold with the uploader; what was read lies below the folder as a predictions file."""
    with st.expander("Add predictions of another tool", icon=":material/upload_file:"):
        chosen = st.selectbox("The scores are", list(_KINDS), key="upload-kind")
        file = st.file_uploader(
            "npz, npy, CSV, TSV, Parquet or JSON lines, with a label in each row",
            type=[e[1:] for e in LIGHT_ENDINGS],
            key="upload-predictions",
        )
        if file is None or not st.button("Read it", key="upload-read"):
            return
        try:
            out, found = keep(root, file.name, file.getvalue(), _KINDS.get(chosen or _UNSAID))
        except (CalibrantError, OSError) as error:
            st.warning(elements.said(error), icon=":material/warning:")
            return
        notes = "".join(f" {note[:1].upper()}{note[1:]}." for note in found.notes)
        st.success(
            elements.said(f"{len(found.predictions):,} rows, the scores are {found.kind}; kept as {out.name}.{notes}")
        )
        st.button("Show it", key="upload-show")  # a click runs the page again, which looks through the folder


def keep(root: Path, name: str, data: bytes, kind: Kind | None) -> tuple[Path, Foreign]:
    """Where the predictions were written, and what they were taken for."""
    safe = Path(name.replace("\\", "/")).name  # the name comes from a browser
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / (safe or "upload")
        path.write_bytes(data)
        found = read_foreign(path, asked=Asked(kind))
    out = root / FOLDER / f"{path.stem}.parquet"
    out.parent.mkdir(parents=True, exist_ok=True)
    found.predictions.write(out)
    return out, found
