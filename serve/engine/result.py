"""A classifier's answer: calibrated probabilities and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import html
from calibrant.artifacts.model_card import ModelCard
from calibrant.calibration.softmax import log_sum_exp, sigmoid, softmax
from calibrant.errors import ConfigError, DataError
from calibrant.serve.engine.deployed_formula import DeployedFormula
from calibrant.serve.engine.knobs import Knobs
from calibrant.serve.engine.prediction_sets import prediction_sets


@dataclass(frozen=True)
class Result:
    """N answers. `prediction_sets[n, k]` says whether class k is in the set of row n."""

    class_names: tuple[str, ...]
    probabilities: NDArray[np.float32]  # (N, C)
    logits: NDArray[np.float32]  # (N, C), with everything applied: softmax(logits) = probabilities
    labels: NDArray[np.int64]  # (N,)
    confidence: NDArray[np.float32]  # (N,), the probability of the label
    abstained: NDArray[np.bool_]  # (N,), confidence below the threshold; the label is still given
    top: NDArray[np.int64]  # (N, k) classes by falling probability
    ood_score: NDArray[np.float32] | None = None  # (N,), larger is more unusual
    ood: NDArray[np.bool_] | None = None  # (N,), above the file's threshold
    prediction_sets: NDArray[np.bool_] | None = None  # (N, C)
    coverage: float | None = None
    ids: tuple[str, ...] | None = None  # where the pictures have names
    present: NDArray[np.bool_] | None = None  # (N, C), of independent labels: those that are more likely than not

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.class_names[k] for k in self.labels)

    def sets(self) -> tuple[tuple[str, ...], ...]:
        """The prediction sets as class names, most probable first; empty tuples where none was asked for."""
        if self.prediction_sets is None:
            return tuple(() for _ in range(len(self)))
        order = np.argsort(-self.probabilities, axis=1, kind="stable")
        return tuple(
            tuple(self.class_names[k] for k in row if inside[k])
            for row, inside in zip(order, self.prediction_sets, strict=True)
        )

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {c:.3f}" for name, c in zip(self.names[:4], self.confidence, strict=False))
        return f"<Result: {len(self)} pictures: {shown}{', ...' if len(self) > 4 else ''}>"

    def _repr_html_(self) -> str:
        ids = self.ids or tuple(map(str, range(len(self))))
        rows = [
            (ids[n], self.class_names[self.labels[n]], f"{self.confidence[n]:.3f}", "yes" if self.abstained[n] else "")
            for n in range(min(len(self), 20))
        ]
        below = f"and {len(self) - 20} more" if len(self) > 20 else ""
        return html.table(("picture", "label", "confidence", "abstained"), rows, below=below)

    def to_frame(self) -> Any:
        """A pandas DataFrame: label, confidence, abstained, and the probability of each class."""
        import pandas as pd

        first = {"label": self.names, "confidence": self.confidence, "abstained": self.abstained}
        each = {f"p_{name}": self.probabilities[:, k] for k, name in enumerate(self.class_names)}
        return pd.DataFrame({**first, **each}, index=None if self.ids is None else list(self.ids))

    def to_rows(self) -> list[dict[str, Any]]:
        """One plain dictionary a row, as POST /predict answers it."""
        sets = self.sets()
        return [self._row(n, sets[n]) for n in range(len(self))]

    def _row(self, n: int, members: tuple[str, ...]) -> dict[str, Any]:
        row: dict[str, Any] = {
            "label": self.class_names[self.labels[n]],
            "index": int(self.labels[n]),
            "confidence": float(self.confidence[n]),
            "abstained": bool(self.abstained[n]),
            "top": [
                {"label": self.class_names[k], "index": int(k), "probability": float(self.probabilities[n, k])}
                for k in self.top[n]
            ],
        }
        if self.present is not None:
            row["labels"] = [self.class_names[k] for k in np.flatnonzero(self.present[n])]
            row["probabilities"] = dict(zip(self.class_names, map(float, self.probabilities[n]), strict=True))
        if self.ood_score is not None:
            row["ood_score"] = float(self.ood_score[n])
        if self.ood is not None:
            row["ood"] = bool(self.ood[n])
        if self.prediction_sets is not None:
            row["prediction_set"] = list(members)
            row["coverage"] = self.coverage
        return row


def answer(
    card: ModelCard,
    formula: DeployedFormula,
    outputs: Mapping[str, NDArray[Any]],
    knobs: Knobs,
    *,
    default_top: int = 5,
) -> Result:
    """The result from what the graph returned (`probabilities`, `logits` and, where it has one, `ood_score`)."""
    if card.independent:
        _check_independent(card, knobs)
    activation = sigmoid if card.independent else softmax
    logits = np.asarray(outputs["logits"], np.float32)
    given = outputs.get("probabilities")  # a file may be exported without them
    probabilities = np.asarray(activation(logits) if given is None else given, np.float32)
    if knobs.changes_probabilities:
        changed = formula.logits(logits, knobs)
        logits, probabilities = changed.astype(np.float32), activation(changed).astype(np.float32)
    if not np.isfinite(probabilities).all():
        row = int(np.isfinite(probabilities).all(axis=1).argmin())
        raise DataError(
            f"the model's answer to row {row} is not a number, so it has no label and no confidence",
            fix="are the input's values of the size that the model was trained on?",
        )
    labels = probabilities.argmax(axis=1)
    confidence = probabilities[np.arange(len(labels)), labels]
    threshold = knobs.abstain_below if knobs.abstain_below is not None else card.abstain_below
    abstained = np.zeros(len(labels), bool) if threshold is None else confidence < threshold
    sets = None
    if knobs.coverage is not None:
        formula.check(knobs)
        sets = prediction_sets(card, formula.conformal_probabilities(outputs), knobs.coverage)
        sets[np.arange(len(labels)), labels] = True
    score = ood_score(card, formula, outputs) if knobs.ood or "ood_score" in outputs else None
    limit = (card.ood or {}).get("threshold")
    return Result(
        card.classes,
        probabilities,
        logits,
        labels.astype(np.int64),
        confidence,
        abstained,
        top_classes(probabilities, knobs.top_k or default_top),
        score,
        None if score is None or limit is None else score > float(limit),
        sets,
        knobs.coverage,
        present=probabilities >= 0.5 if card.independent else None,
    )


def _check_independent(card: ModelCard, knobs: Knobs) -> None:
    """What is made for one label a picture has no meaning where there may be several."""
    for name, asked in (
        ("coverage", knobs.coverage is not None),
        ("ood", knobs.ood and "ood_score" not in card.outputs),
    ):
        if asked:
            raise ConfigError(
                "is for files with one label a picture; the labels of this one are independent", where=name
            )
    if knobs.adjust_strength is not None or knobs.target_prior is not None:
        raise ConfigError(
            "base rates of independent labels are changed in the file, not in a request",
            where="adjust_strength" if knobs.adjust_strength is not None else "target_prior",
            fix="calibrant calibrate --target-prior, then calibrant recalibrate",
        )


def top_classes(probabilities: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """(N, min(k, C)) classes by falling probability; the lower index first among equals."""
    k = min(k, probabilities.shape[1])
    return np.argsort(-probabilities, axis=1, kind="stable")[:, :k].astype(np.int64)


def require_energy(formula: DeployedFormula) -> None:
    """Refuses a file whose network's logits cannot be had back."""
    if formula.scale is None:
        raise _hidden(formula)


def _hidden(formula: DeployedFormula) -> ConfigError:
    return ConfigError(
        f"the file has no out-of-distribution score and its calibrator ({formula.calibrator}) hides the energy",
        where="ood",
        fix="export it with an ood score",
    )


def ood_score(card: ModelCard, formula: DeployedFormula, outputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """(N,): the graph's own score, else the energy -log sum_k exp z_k of the network's logits."""
    if "ood_score" in outputs:
        return np.asarray(outputs["ood_score"], np.float32).reshape(-1)
    z = formula.raw(outputs["logits"])
    if z is None:
        raise _hidden(formula)
    return -log_sum_exp(z).astype(np.float32)
