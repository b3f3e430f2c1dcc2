"""Token pictures: which patches of an image a token-reducing network keeps, merges or drops at each stage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd
import streamlit as st

from calibrant.dashboard.draw import charts, downloads, pictures
from calibrant.dashboard.folder.artifacts import Run, TokenGallery, TokenPicture
from calibrant.dashboard.widgets import controls, elements
from calibrant.dashboard.widgets.markdown_escape import plain, short
from calibrant.errors import CalibrantError


def render(root: Path, runs: Sequence[Run]) -> None:
    galleries = {run.name: run.tokens for run in runs if run.tokens is not None and run.tokens.pictures}
    if not galleries:
        return
    st.subheader("Tokens that are kept")
    name = next(iter(galleries))
    if len(galleries) > 1:
        name = controls.choose("Token pictures of", list(galleries), key="tokens")
    gallery = galleries[name]
    _left(gallery, name, galleries)
    st.markdown(_explain(gallery))
    columns = st.columns(2)
    for i, picture in enumerate(gallery.pictures):
        with columns[i % 2]:
            _picture(root, gallery, picture)
    downloads.offer(f"tokens-{name}", table_of(gallery))


def _left(gallery: TokenGallery, name: str, galleries: dict[str, TokenGallery]) -> None:
    parts = [counts(g).assign(run=n) for n, g in galleries.items()]
    table = pd.concat(parts, ignore_index=True)
    elements.chart(
        "tokens-left",
        table,
        partial(
            charts.lines,
            table,
            x="block",
            y="tokens",
            series="run",
            order=list(galleries),
            form=",d",
            x_title="After block",
            title="Tokens that carry patches, mean over the pictures",
        ),
        alt="Tokens left after each block",
        key="chart-tokens",
    )


def counts(gallery: TokenGallery) -> pd.DataFrame:
    """Mean number of tokens at the input and after each stage; blocks are counted from 1."""
    whole = gallery.grid[0] * gallery.grid[1]
    means = [sum(p.tokens[k] for p in gallery.pictures) / len(gallery.pictures) for k in range(len(gallery.blocks))]
    return pd.DataFrame({"block": [0, *(b + 1 for b in gallery.blocks)], "tokens": [float(whole), *means]})


def table_of(gallery: TokenGallery) -> pd.DataFrame:
    names = gallery.class_names
    return pd.DataFrame(
        [
            {
                "id": p.id,
                "label": names[p.label] if p.label >= 0 else "",
                "predicted": names[p.predicted],
                "confidence": p.confidence,
                **{f"tokens after block {b + 1}": n for b, n in zip(gallery.blocks, p.tokens, strict=True)},
                **{f"patches after block {b + 1}": n for b, n in zip(gallery.blocks, p.patches, strict=True)},
            }
            for p in gallery.pictures
        ]
    )


def _explain(gallery: TokenGallery) -> str:
    blocks = ", ".join(str(b + 1) for b in gallery.blocks)
    what = (
        "Patches of one merged token have their mean colour, with a white line between tokens; grey patches are gone."
        if gallery.merged
        else "Grey patches were dropped, or summed into one token without a place."
    )
    return (
        f"From the left: the image of the {plain(gallery.split)} set, then what **{plain(gallery.method)}** has kept "
        f"of its {gallery.grid[0]} × {gallery.grid[1]} patches after block {blocks}. {what} The network sees no more "
        "of the image than this from there on."
    )


def _picture(root: Path, gallery: TokenGallery, picture: TokenPicture) -> None:
    path = pictures.find((root,), picture.path.relative_to(root).as_posix())
    if path is None:
        st.markdown("*(no picture)*")
    else:
        try:
            st.image(pictures.whole(path), width="stretch")
        except CalibrantError as error:
            st.markdown(f"*{elements.said(error.what)}*")
    names, right = gallery.class_names, picture.label == picture.predicted
    verdict = "" if picture.label < 0 else ":material/check: " if right else ":material/close: "
    label = "" if picture.label < 0 or right else f"; label: {plain(short(names[picture.label]))}"
    left = " → ".join(str(n) for n in picture.tokens)
    st.markdown(
        f"{verdict}**{plain(short(names[picture.predicted]))}** {elements.percent(picture.confidence, 1)}{label}  \n"
        f"{plain(short(picture.id, 60))}: {left} tokens"
    )
