"""The lower part of Decide: pictures at the line, classes that are confused, sizes of prediction sets."""

from __future__ import annotations

from functools import partial

import pandas as pd
import streamlit as st

from calibrant.dashboard.draw import decisions, downloads
from calibrant.dashboard.folder.artifacts import FolderIndex, Model
from calibrant.dashboard.numbers.decide import answering, confusion, set_sizes
from calibrant.dashboard.numbers.rows import rows_of
from calibrant.dashboard.views import samples
from calibrant.dashboard.views.subject import Chosen
from calibrant.dashboard.widgets import controls, elements
from calibrant.dashboard.widgets.markdown_escape import isolated, plain, short

_SHOWN = {"line": "Pictures at the line", "confusions": "Confusions", "sets": "Prediction sets"}
_ANSWERED = {"all": "all rows", "alone": "answered alone"}
_AT_LINE, _CROSSED, _BEHIND = 4, 9, 24
_NONE = "none"


def render(folder_index: FolderIndex, chosen: Chosen, threshold: float) -> None:
    shown = controls.choose_one_of_few("Show", list(_SHOWN), key="decide", labels=_SHOWN)
    if shown == "line":
        _at_the_line(folder_index, chosen, threshold)
    elif shown == "confusions":
        _confusions(folder_index, chosen, threshold)
    else:
        _sets(chosen)


# ---- the line ----


def _at_the_line(folder_index: FolderIndex, chosen: Chosen, threshold: float) -> None:
    above, below = answering.beside_the_line(chosen.scored, threshold, _AT_LINE)
    left, right = st.columns(2)
    for place, title, index, key in (
        (left, "**Just above**: answered alone", above, "above"),
        (right, "**Just below**: handed to a human", below, "below"),
    ):
        with place:
            st.markdown(title if len(index) else f"{title}. There is none.")
            samples.strip(folder_index, chosen.run, chosen.predictions, chosen.scored, index, key=f"{key}-the-line")
    _crossed(folder_index, chosen, threshold)


def _crossed(folder_index: FolderIndex, chosen: Chosen, threshold: float) -> None:
    """What the last move of the line has changed; the first move is from what the file does now."""
    key = f"line:{chosen.owner.name}|{chosen.predictions.name}"
    now = (chosen.owner.card.abstain_below or 0.0) if isinstance(chosen.owner, Model) else threshold
    before, last = st.session_state.get(key, (now, now))
    if threshold != last:
        before, last = last, threshold
    st.session_state[key] = (before, last)
    index = answering.crossing(chosen.scored, before, threshold)
    if before == threshold:
        return
    wrong = int((~rows_of(chosen.scored).right[index]).sum())
    goes = "are handed to a human now" if threshold > before else "are answered alone now"
    st.markdown(
        f"**Moved from {100 * before:.1f} % to {100 * threshold:.1f} %**: {len(index):,} rows {goes}, {wrong:,} of "
        f"them wrong answers{'. The wrong ones come first:' if wrong else '.'}"
    )
    samples.strip(folder_index, chosen.run, chosen.predictions, chosen.scored, index[:_CROSSED], key="crossed-the-line")


# ---- confusions ----


def _confusions(folder_index: FolderIndex, chosen: Chosen, threshold: float) -> None:
    which = controls.choose_one_of_few("Of", list(_ANSWERED), key="of-rows", labels=_ANSWERED)
    least = threshold if which == "alone" else 0.0
    found = confusion.confusion(chosen.scored, least)
    names = chosen.predictions.source.class_names
    shown = [isolated(short(names[k], 22)) for k in found.classes]
    if len(set(shown)) < len(shown):  # names that are alike where they were cut
        shown = [f"{name} ({k})" for name, k in zip(shown, found.classes, strict=True)]
    totals = found.counts.sum(axis=1)
    table = pd.DataFrame(
        [
            {
                "label": shown[i],
                "answer": shown[j],
                "rows": int(found.counts[i, j]),
                "share": found.counts[i, j] / max(1, totals[i]),
                "wrong": None if i == j else found.counts[i, j] / max(1, totals[i]),
                "cell": f"{found.classes[i]}-{found.classes[j]}",
            }
            for i in range(len(shown))
            for j in range(len(shown))
        ]
    ).astype({"wrong": float})
    left, right = st.columns([6, 5])
    with left:
        draw = partial(decisions.confusion, table, names=shown)
        event = elements.drawing(
            draw(colours=elements.colours()), alt="Labels against answers", key="chart-confusion", select="cell"
        )
        downloads.offer("confusions", table.drop(columns=["wrong", "cell"]), draw)
        if len(names) > len(shown):
            rest = f"; {found.left_out:,} confusions are of others" if found.left_out else ""
            st.markdown(f"The {len(shown)} of {len(names):,} classes that are confused most{rest}.")
    with right:
        cell = _cell(table, event, f"{chosen.owner.name}|{chosen.predictions.name}|{which}")
        if cell is None:
            st.markdown("Click a square, or choose a confusion, to see its pictures.")
            return
        label, answer = map(int, cell.split("-"))
        index = confusion.rows_behind(chosen.scored, label, answer, least)
        st.markdown(
            f"**{len(index):,} rows of {plain(short(names[label]))}, answered as {plain(short(names[answer]))}**, the "
            "surest first"
        )
        samples.strip(
            folder_index, chosen.run, chosen.predictions, chosen.scored, index[:_BEHIND], key="behind-the-square"
        )


def _cell(table: pd.DataFrame, event: object, about: str) -> str | None:
    """The clicked square, or the chosen one; the select box reaches it by keyboard and keeps it in the address."""
    selection = getattr(event, "selection", None)
    points = [] if selection is None else selection.get("cell", [])
    clicked = str(points[0]["cell"]) if points else None
    if clicked is not None and st.session_state.get("clicked square") != clicked:
        controls.put("confusion", clicked)
    st.session_state["clicked square"] = clicked
    wrong = table[(table["label"] != table["answer"]) & (table["rows"] > 0)].sort_values("rows", ascending=False)
    labels = {
        str(r.cell): f"{r.label} → {r.answer}: {r.rows:,}"
        for r in [*wrong.itertuples(), *table[table["label"] == table["answer"]].itertuples()]
    }
    found = controls.choose(
        "Confusion", [_NONE, *labels], key="confusion", labels={_NONE: "none", **labels}, about=about
    )
    return None if found == _NONE else found


# ---- prediction sets ----


def _sets(chosen: Chosen) -> None:
    offered = set_sizes.levels(chosen.scored)
    keys = [f"{level:g}" for level in offered]
    level = float(
        controls.choose(
            "The set holds the truth",
            keys,
            key="holds",
            default="0.9" if "0.9" in keys else keys[0],
            labels={k: f"{100 * float(k):g} % of the time" for k in keys},
            about="|".join(keys),
            help="A prediction set is all classes that cannot be ruled out at that level.",
        )
    )
    found = set_sizes.set_sizes(chosen.scored, level)
    rows = int(found.count.sum())
    table = pd.DataFrame(
        [{"size": k, "share": n / rows, "rows": int(n)} for k, n in enumerate(found.count.tolist()) if n]
    )
    left, right = st.columns([6, 5])
    with left:
        elements.chart(
            "set-sizes",
            table,
            partial(decisions.set_sizes, table),
            alt="How many classes the prediction sets hold",
            key="chart-set-sizes",
        )
    with right:
        low, high = found.covered.low or 0.0, found.covered.high
        st.markdown(
            f"A set holds **{found.mean:.2f} classes** on average; {elements.percent(float(found.count[1] / rows), 1)} "
            f"of the rows need one only. It held the truth for **{elements.percent(found.covered.value, 1)}** of "
            f"{rows:,} rows ({100 * low:.1f} – {elements.percent(high, 1)}, 95 %)."
        )
        if found.fitted_rows is not None:
            st.markdown(
                f"No sets lie in it yet: these were fitted on {found.fitted_rows:,} rows and judged on the others. To "
                f"keep some: `calibrant calibrate ... --conformal {1 - level:.3g}`."
            )
