"""Try it: pictures through a deployed file, as it is and with other knobs, side by side."""

from __future__ import annotations

import shlex
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from calibrant.dashboard import settings
from calibrant.dashboard.draw import charts, pictures
from calibrant.dashboard.folder.artifacts import FolderIndex, Model
from calibrant.dashboard.folder.files import Stamp, stamp
from calibrant.dashboard.numbers import deployed as deployed_file
from calibrant.dashboard.numbers import unusual
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.dashboard.numbers.unusual import Unusual
from calibrant.dashboard.views import candidates
from calibrant.dashboard.views.candidates import Picture
from calibrant.dashboard.widgets import controls, elements
from calibrant.dashboard.widgets.markdown_escape import plain, short
from calibrant.serve import Classifier, load
from calibrant.serve.engine.prediction_sets import coverages
from calibrant.serve.engine.result import Result

SIDE = 220
_TOP = 5
_NONE = "off"
_PRIORS = {
    "file": "as in the file",
    "uniform": "all classes equally common",
    "train": "as common as in training",
    "one": "one class is common",
}
_loading = threading.Lock()


@dataclass(frozen=True)
class Knobs:
    temperature: float | None
    strength: float | None
    prior: str | tuple[float, ...] | None
    abstain_below: float | None
    coverage: float | None


def render(folder_index: FolderIndex) -> None:
    elements.title("Try it")
    if not folder_index.models:
        elements.troubles([t for t in folder_index.troubles if t.where.endswith(".onnx")])
        st.info("No deployed file here yet. Export a run:", icon=":material/info:")
        elements.command(folder_index.root, _export(folder_index))
        return
    name = controls.choose("Deployed file", [m.name for m in folder_index.models], key="model")
    model = next(m for m in folder_index.models if m.name == name)
    with st.spinner("Loading the file"):
        classifier = classifier_of(model)
    left, right = st.columns([2, 3])
    with left:
        found = candidates.choose(folder_index, model)
    with right:
        knobs = _knobs(model)
    if not found:
        st.markdown("Drop a picture, or take samples where a run's pictures are at hand.")
        return
    deployed, changed = predict(classifier, found, knobs)
    judged = _judged(folder_index, model, classifier, found, deployed)
    _summary(deployed, changed)
    for n, picture in enumerate(found):
        st.divider()
        _answer(n, picture, judged[n], deployed, changed)


def _export(folder_index: FolderIndex) -> str:
    run = next((r for r in folder_index.runs if r.config is not None), None)
    near = () if run is None or (best := run.best()) is None else folder_index.calibrators_for(run, best)
    calibrator = f" --calibrator {shlex.quote(near[0].name)}" if near else ""
    return f"calibrant export {shlex.quote(run.name) if run else 'first'}{calibrator} --out model.onnx"


def classifier_of(model: Model) -> Classifier:
    with _loading:
        return _classifier(stamp(model.path))


@lru_cache(2)
def _classifier(file: Stamp) -> Classifier:
    return load(file.path, threads=1)


# ---- knobs ----


def _knobs(model: Model) -> Knobs:
    card = model.card
    first, second = st.columns(2)
    with first:
        start = _temperature(model)
        chosen_t = controls.slide_decimal(
            "Temperature",
            0.2,
            5.0,
            step=0.01,
            key="t",
            about=model.name,
            default=start,
            help="Divides the logits: higher is less sure. It starts at the file's own, or at 1 where the file's "
            "calibrator is not a temperature.",
        )
        temperature = None if chosen_t == start else chosen_t
        lowest = controls.slide(
            "Abstain below (%)",
            0,
            100,
            key="abstain",
            about=model.name,
            default=round(100 * (card.abstain_below or 0.0)),
            help="With less confidence the answer is: I don't know.",
        )
        known = coverages(card)
        coverage = None
        if known:
            chosen = controls.choose(
                "Prediction set",
                [*(f"{c:g}" for c in known), _NONE],
                key="coverage",
                about=model.name,
                labels={f"{c:g}": f"holds the truth {100 * c:g} % of the time" for c in known},
                help="All classes that cannot be ruled out at that level, from the file's conformal quantiles.",
            )
            coverage = None if chosen == _NONE else float(chosen)
    with second:
        strength: float | None = None
        prior: str | tuple[float, ...] | None = None
        if card.prior.train is None:
            st.markdown("The file does not know its training prior, so it cannot be adjusted to another.")
        else:
            strength, prior = _prior_knobs(model)
    return Knobs(temperature, strength, prior, lowest / 100, coverage)


def _prior_knobs(model: Model) -> tuple[float | None, str | tuple[float, ...] | None]:
    card = model.card
    start = round(card.prior.total, 2)
    strength_now = controls.slide_decimal(
        "Adjustment strength",
        0.0,
        2.0,
        step=0.05,
        key="strength",
        about=model.name,
        default=start,
        help="How strongly the answer is moved from the class prior of the training set to the target prior; 1 is "
        "Bayes' rule. The total, training's own share included.",
    )
    strength = None if strength_now == start else strength_now
    which = controls.choose(
        "Target prior", list(_PRIORS), key="prior", labels=_PRIORS, about=model.name, help="What is expected in use."
    )
    if which == "file":
        return strength, None
    if which in ("uniform", "train"):
        return strength, which
    classes = list(card.classes)
    common = controls.choose("Common class", classes, key="common", about=model.name)
    share = controls.slide("Its share (%)", 1, 99, key="share", default=50, about=model.name) / 100
    others = (1 - share) / max(1, len(classes) - 1)
    return strength, tuple(share if name == common else others for name in classes)


def _temperature(model: Model) -> float:
    """The file's temperature, rounded as the slider moves; 1 where its calibrator is none or another map."""
    calibrator = model.card.calibrator or {}
    parameters = {**calibrator, **(calibrator.get("parameters") or {})}
    known = calibrator.get("method") == "temperature" and "temperature" in parameters
    return round(float(parameters["temperature"]), 2) if known else 1.0


# ---- answers ----


def predict(classifier: Classifier, found: list[Picture], knobs: Knobs) -> tuple[Result, Result]:
    """As the file is, and with the knobs, by the engine that serves."""
    images = [p.image for p in found]
    ood = _has_ood(classifier)
    deployed = classifier.predict(images, coverage=knobs.coverage, top_k=_TOP, ood=ood)
    moved = knobs.strength is not None or knobs.prior is not None  # under another prior no coverage is promised
    changed = classifier.predict(
        images,
        temperature=knobs.temperature,
        adjust_strength=knobs.strength,
        target_prior=knobs.prior,
        abstain_below=knobs.abstain_below,
        coverage=None if moved else knobs.coverage,
        top_k=_TOP,
        ood=ood,
    )
    return deployed, changed


def _has_ood(classifier: Classifier) -> bool:
    """The energy score needs logits that can be traced back; a file with a score of its own always has it."""
    own = "ood_score" in classifier.session.outputs
    return own or classifier.formula.raw(np.zeros((1, len(classifier.class_names)), np.float32)) is not None


def _judged(
    folder_index: FolderIndex, model: Model, classifier: Classifier, found: list[Picture], deployed: Result
) -> list[Unusual]:
    """How unusual each is among the images that the file was judged by."""
    held_out = deployed_file.held_out(folder_index, model)
    own = "ood_score" in classifier.session.outputs  # a score that the held-out predictions do not hold
    scores = [None] * len(found) if own or deployed.ood_score is None else deployed.ood_score.tolist()
    if held_out is None:
        return [unusual.judge(p.image, None, None, ()) for p in found]
    run, predictions = held_out
    where = pictures.folders(folder_index, run, predictions, settings.current().images)
    scored = Scored.of(predictions)
    with st.spinner("Looking at the held-out images"):
        return [unusual.judge(p.image, s, scored, where) for p, s in zip(found, scores, strict=True)]


def _summary(deployed: Result, changed: Result) -> None:
    columns = st.columns(3)
    moved = int((deployed.labels != changed.labels).sum())
    with columns[0]:
        st.metric("Mean confidence, as deployed", elements.percent(float(deployed.confidence.mean())))
    with columns[1]:
        st.metric("Mean confidence, your settings", elements.percent(float(changed.confidence.mean())))
    with columns[2]:
        st.metric("Pictures whose answer changes", f"{moved} of {len(deployed)}")


def _answer(n: int, picture: Picture, judged: Unusual, deployed: Result, changed: Result) -> None:
    first, second, third = st.columns([2, 3, 5])
    with first:
        shown = picture.image.copy()
        shown.thumbnail((2 * SIDE, 2 * SIDE))
        st.image(shown, width=SIDE)
        label = "" if picture.label is None else f"  \nlabel: **{plain(short(picture.label))}**"
        st.markdown(f"{plain(short(picture.name))}{label}")
    with second:
        for title, result in (("As deployed", deployed), ("Your settings", changed)):
            _verdict(title, result, n)
        _unusual(judged, n, deployed)
    with third:
        table = _table(n, deployed, changed)
        elements.chart(
            f"answer-{n + 1}", table, _Draw(table), alt=f"Probabilities of picture {n + 1}", key=f"answer-chart-{n}"
        )


def _unusual(judged: Unusual, n: int, deployed: Result) -> None:
    above = deployed.ood is not None and bool(deployed.ood[n])  # the file's own threshold
    if judged.warned or above:
        said = judged.sentence() if judged.warned else "It is more unusual than the file lets pass."
        st.warning(f"**Do not rely on this answer.** {said}", icon=":material/warning:")
    elif said := judged.sentence():
        st.markdown(said)
    if deployed.ood_score is not None:
        score = f"Out-of-distribution score {float(deployed.ood_score[n]):.3f}"
        st.markdown(f":small[{score}; the higher, the more unusual.]")


def _verdict(title: str, result: Result, n: int) -> None:
    name = plain(short(result.names[n], 32))
    sure = f"**{name}** {elements.percent(float(result.confidence[n]))}"
    text = f"**I don't know.** Best guess: {sure}" if bool(result.abstained[n]) else sure
    st.markdown(f"{title}: {text}")
    members = result.sets()[n]
    if members:
        listed = ", ".join(plain(short(m, 24)) for m in members[:6])
        st.markdown(f"Set: {listed}{f' and {len(members) - 6} more' if len(members) > 6 else ''}")


def _table(n: int, deployed: Result, changed: Result) -> pd.DataFrame:
    """The most probable classes of either answer."""
    classes = list(dict.fromkeys([*deployed.top[n].tolist(), *changed.top[n].tolist()]))[: _TOP + 2]
    return pd.DataFrame(
        [
            {"class": deployed.class_names[k], "answer": answer, "probability": float(result.probabilities[n, k])}
            for k in classes
            for answer, result in (("as deployed", deployed), ("your settings", changed))
        ]
    )


@dataclass(frozen=True)
class _Draw:
    table: pd.DataFrame

    def __call__(self, *, colours: Any) -> Any:
        return charts.paired_bars(self.table, colours=colours)
