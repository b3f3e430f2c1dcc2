"""The engine without a network: `load(path).predict(images)`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import html
from calibrant.artifacts.model_card import ModelCard
from calibrant.errors import FormatError
from calibrant.serve.engine import forms
from calibrant.serve.engine import pixels as images_
from calibrant.serve.engine.deployed_formula import DeployedFormula
from calibrant.serve.engine.knobs import Knobs
from calibrant.serve.engine.result import Result, answer
from calibrant.serve.engine.session import Arrays, Session


def load(
    path: str | Path,
    *,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    measure: bool = False,
) -> Classifier:
    """A deployed file, ready to predict. `measure` times the batch sizes first, as the server does."""
    session = Session(path, providers=providers, threads=threads)
    if measure:
        session.warm_up()
    return Classifier(session)


_AT_A_TIME = 1024  # pictures that are decoded before they are run


class Classifier:
    """A deployed file. Thread-safe."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._formula = None if session.card is None else DeployedFormula.of(session.card)

    @property
    def path(self) -> Path:
        return self.session.path

    def __repr__(self) -> str:
        card = self.session.card
        if card is None:
            return f"<Classifier {self.path}: no card>"
        height, width = card.preprocessing.size
        return f"<Classifier {self.path}: {len(card.classes)} classes, {height} x {width}, {self._calibrated(card)}>"

    def _repr_html_(self) -> str:
        card = self.card
        height, width = card.preprocessing.size
        rows = [
            ("name", card.name), ("classes", f"{len(card.classes)}: {html.few(card.classes)}"),
            ("pictures", f"{height} x {width}"), ("calibration", self._calibrated(card)),
            ("abstains below", "never" if card.abstain_below is None else f"{card.abstain_below:.3f}"),
        ]  # fmt: skip
        return html.table(("", ""), rows, title=str(self.path))

    @staticmethod
    def _calibrated(card: ModelCard) -> str:
        return "not calibrated" if not card.calibrator else f"calibrated by {card.calibrator['method']}"

    @property
    def card(self) -> ModelCard:
        return self.session.require_card()

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.card.classes

    @property
    def formula(self) -> DeployedFormula:
        self.session.require_card()
        if self._formula is None:
            raise FormatError("has no calibrant block", where=self.session.path)
        return self._formula

    def predict(
        self,
        images: Any,
        *,
        temperature: float | None = None,
        adjust_strength: float | None = None,
        target_prior: Sequence[float] | str | None = None,
        abstain_below: float | None = None,
        coverage: float | None = None,
        top_k: int | None = None,
        ood: bool = False,
        batch_size: int | None = None,
    ) -> Result:
        """Calibrated answers for pictures in any form that `engine.forms` knows.

        These are paths, folders, patterns, PIL pictures, encoded bytes, arrays and tensors.

        Without `batch_size` pictures run in batches of the measured cap, or 8 when nothing was measured.
        """
        card = self.card
        knobs = Knobs.parse(
            {
                "temperature": temperature,
                "adjust_strength": adjust_strength,
                "target_prior": target_prior,
                "abstain_below": abstain_below,
                "coverage": coverage,
                "top_k": top_k,
                "ood": ood,
            }
        )
        images = forms.listed(images) if card.input.pictures else images
        parts = [self.outputs(p, batch_size=batch_size) for p in images_.in_parts(card, images, rows=_AT_A_TIME)]
        outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        found = answer(card, self.formula, outputs, knobs)
        return replace(found, ids=forms.ids(images)) if card.input.pictures else found

    def rows(self, images: Any) -> images_.Pixels:
        """Pictures or rows of numbers in any form, as one array that `outputs` takes."""
        return images_.pixels(self.card, images)

    def outputs(self, pixels: images_.Pixels, *, batch_size: int | None = None) -> Arrays:
        """What the graph itself returns for uint8 [N, H, W, 3], run in batches."""
        step = batch_size or (self.session.cap if self.session.curve.points else 8)
        if not self.session.batched:
            step = self.session.fixed_rows or 1
        parts = [self._run(pixels[start : start + step]) for start in range(0, len(pixels), step)]
        if not parts:
            width = len(self.card.classes)
            return {name: np.zeros((0, width), np.float32) for name in ("probabilities", "logits")}
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _run(self, pixels: images_.Pixels) -> Arrays:
        return self.session.run_rows(self.feeds(images_.model_input(self.card, pixels)))

    def feeds(self, images: NDArray[Any]) -> Arrays:
        """The images, and for a file that asks for its knobs as inputs (`--knobs required`) the values of its card."""
        feeds: Arrays = {self.card.input.name: images}
        formula, rows = self.formula, len(images)
        values = {"temperature": [formula.fitted], "adjust_strength": [1.0], "log_prior_ratio": formula.term}
        for name in self.session.required:
            if name in values and name not in feeds:
                feeds[name] = np.tile(np.asarray(values[name], np.float32), (rows, 1))
        return feeds
