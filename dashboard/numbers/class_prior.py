"""The class prior under which numbers are asked for: as the rows are, even, as in training, as elsewhere, or typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from calibrant.artifacts.predictions import Source
from calibrant.dashboard.folder.artifacts import FolderIndex, PredictionsRef
from calibrant.dashboard.numbers import measures, traffic
from calibrant.dashboard.numbers.measures import Target
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.dashboard.widgets import controls, elements
from calibrant.errors import CalibrantError, ConfigError
from calibrant.priors import UNIFORM, shares_of, written

AS_IS, TRAINING, TYPED = "data", "training", "typed"
_LABELS = {
    AS_IS: "as in these rows", UNIFORM: "all classes equally common", TRAINING: "as common as in training",
    TYPED: "shares that I type",
}  # fmt: skip
_MOST_OTHERS = 200


def control(folder_index: FolderIndex, predictions: PredictionsRef, *, disabled: bool) -> Target:
    """The chosen prior; None, the rows' own, where it cannot apply."""
    others = _others(folder_index, predictions)
    options = [AS_IS, UNIFORM, *([TRAINING] if predictions.source.train_prior else []), *others, TYPED]
    chosen = controls.choose(
        "Class prior",
        options,
        key="target",
        labels=_LABELS | others,
        about="|".join(options),
        disabled=disabled,
        help="Weighs each row so that the classes are as common as chosen: the numbers to expect under that class "
        "prior. Works for all rows together.",
    )
    if disabled or chosen == AS_IS:
        return None
    if chosen == UNIFORM:
        return UNIFORM
    source = predictions.source
    if chosen == TRAINING:
        return _of_rows_here(source.train_prior or (), predictions)
    if chosen == TYPED:
        return _typed(predictions)
    return _of_rows_here(_counted(folder_index, chosen, source), predictions)


def _others(folder_index: FolderIndex, predictions: PredictionsRef) -> dict[str, str]:
    """Label sets whose class shares can be taken over: key in the address -> what the reader sees."""
    names = predictions.source.class_names
    found = {}
    for run in folder_index.runs:
        for other in run.predictions:
            if other.path != predictions.path and other.source.class_names == names:
                found[f"rows:{run.name}/{other.name}"] = f"as the labels of {run.name}/{other.name}"
    for log in folder_index.feedback:
        found[f"served:{log.name}"] = f"as the labels served, {log.name}"
    return dict(list(found.items())[:_MOST_OTHERS])


def _counted(folder_index: FolderIndex, key: str, source: Source) -> Sequence[float]:
    """Rows of each class among the labels of another set, or of a feedback log."""
    kind, _, name = key.partition(":")
    if kind == "served":
        log = next(f for f in folder_index.feedback if f.name == name)
        return served_labels(log.path, source.class_names)
    for run in folder_index.runs:
        for other in run.predictions:
            if f"{run.name}/{other.name}" == name:
                counts: list[float] = measures.statistics(Scored.of(other)).by_true.rows.tolist()
                return counts
    raise ConfigError(f"{name} is no longer here")


def served_labels(path: Path, names: tuple[str, ...]) -> list[float]:
    """Rows of each class among the labels that have arrived for files with these classes."""
    feedback = traffic.read(path, traffic.log_stamps(path))
    counts = np.zeros(len(names))
    for served in feedback.served:
        if served.model.classes == names:
            counts += np.bincount(served.labels[served.labels >= 0], minlength=len(names))
    if not counts.sum():
        raise ConfigError("no label for these classes has arrived", where=path.name, fix="choose another class prior")
    return [float(c) for c in counts]


def _typed(predictions: PredictionsRef) -> Target:
    names = predictions.source.class_names
    text = controls.write(
        "Shares of the classes",
        key="weights",
        placeholder=f"{names[0]}=3, *=1",
        help="Name=share, separated by commas; *=1 is for every class that is not named. Or a number for every class, "
        "in order. Shares add up to 1, counts need not.",
    )
    if not text.strip():
        return UNIFORM
    try:
        asked = written(text, where="Shares of the classes", files=False)
        found = shares_of(asked, names, train=predictions.source.train_prior, where="Shares of the classes")
        return _of_rows_here(found.tolist(), predictions)
    except CalibrantError as error:
        st.warning(elements.said(error), icon=":material/warning:")
        return None


def _of_rows_here(shares: Sequence[float], predictions: PredictionsRef) -> Target:
    """Shares of the classes that occur among the rows; no weight can make up for a class without rows."""
    rows: NDArray[np.int64] = measures.statistics(Scored.of(predictions)).by_true.rows
    found = np.where(rows > 0, np.asarray(shares, np.float64), 0.0)
    lost = float(np.sum(shares)) - float(found.sum())
    if found.sum() <= 0:
        raise ConfigError("no class that these rows hold has a share in that prior", fix="choose another class prior")
    if lost > 0:
        st.warning(
            f"{100 * lost / float(np.sum(shares)):.1f} % of that prior belongs to classes without a row here; the "
            "numbers are about the others.",
            icon=":material/warning:",
        )
    return tuple((found / found.sum()).tolist())
