"""The pictures of the Try it page: dropped by the reader, or a few samples of a run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import streamlit as st

from calibrant.dashboard import settings
from calibrant.dashboard.draw import pictures
from calibrant.dashboard.folder.artifacts import FolderIndex, Model, Run
from calibrant.dashboard.numbers import rows
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.dashboard.server import UPLOAD_MEGABYTES
from calibrant.dashboard.widgets import controls, elements
from calibrant.errors import CalibrantError, DataError
from calibrant.images.decode import IMAGE_SUFFIXES

MOST_PICTURES = 6


@dataclass(frozen=True)
class Picture:
    name: str
    image: Any  # PIL
    label: str | None  # the true class, where it is known


def choose(folder_index: FolderIndex, model: Model) -> list[Picture]:
    uploaded = st.file_uploader(
        f"Pictures (up to {MOST_PICTURES}, {UPLOAD_MEGABYTES} MB each)",
        type=[s[1:] for s in IMAGE_SUFFIXES],
        accept_multiple_files=True,
        key="upload",
    )
    found: list[Picture] = []
    for file in uploaded[:MOST_PICTURES]:
        try:
            found.append(Picture(file.name, _decoded(file.getvalue(), file.name), None))
        except CalibrantError as error:
            st.warning(elements.said(error), icon=":material/warning:")
    if len(uploaded) > MOST_PICTURES:
        st.warning(f"Only the first {MOST_PICTURES} are used.", icon=":material/warning:")
    if uploaded:
        return found
    return _samples(folder_index, model)


def _decoded(data: bytes, name: str) -> Any:
    if len(data) > UPLOAD_MEGABYTES << 20:
        raise DataError(f"is larger than {UPLOAD_MEGABYTES} MB", where=name)
    return _decode(hashlib.sha256(data).hexdigest(), _Bytes(data), name)


@dataclass(frozen=True)
class _Bytes:
    """Bytes that do not take part in the cache's key; their hash does."""

    data: bytes

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bytes)


@lru_cache(24)
def _decode(digest: str, content: _Bytes, name: str) -> Any:
    return pictures.decode(content.data, name=name)


def _samples(folder_index: FolderIndex, model: Model) -> list[Picture]:
    """Pictures of a run with the same classes, a few at a time."""
    for run in sorted(
        folder_index.runs, key=lambda r: r.path.parent != model.path.parent and r.path != model.path.parent
    ):
        best = run.best()
        if best is None or best.source.class_names != model.card.classes:
            continue
        where = pictures.folders(folder_index, run, best, settings.current().images)
        if where:
            return _samples_of(run, where, model)
    st.markdown("There are no samples: no run here has this file's classes and pictures that may be shown.")
    return []


def _samples_of(run: Run, where: tuple[Any, ...], model: Model) -> list[Picture]:
    best = run.best()
    if best is None:
        return []
    scored = Scored.of(best)
    table = rows.rows_of(scored)
    pages = max(1, len(table.label) // 3)
    page = controls.slide(
        "Page of samples",
        1,
        min(pages, 200),
        key="sample",
        default=1,
        about=model.name,
        help=f"Three pictures at a time from {best.name} of the run, spread over all of it.",
    )
    # A fixed shuffle: neighbours in a file are of one class.
    order = np.random.default_rng(0).permutation(len(table.label))
    chosen = np.sort(order[3 * (page - 1) : 3 * page])
    found = []
    for row in rows.read(scored, table, chosen):
        path = pictures.find(where, row.id)
        if path is not None:
            found.append(Picture(row.id, pictures.whole(path), best.source.class_names[row.label]))
    return found
