"""Independent labels in Python: what `evaluate` and `fit` do where a row may have several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant import html
from calibrant.artifacts.predictions import PredictionsFile
from calibrant.calibration.calibrators.base import Calibrator
from calibrant.calibration.independent.files import LabelsModel, base_rates_of, fit_labels_of, judge_labels
from calibrant.calibration.independent.measure import LabelFigures
from calibrant.calibration.independent.report import WORDS, verdict_line
from calibrant.calibration.intervals.measured import Measured
from calibrant.errors import ConfigError

_HEADS = ("label", "rows", "there", "claimed", "ECE", "95 % interval", "if calibrated", "probabilities are")


@dataclass(frozen=True, repr=False)
class LabelsReport:
    """Each label by itself (`report.labels`), and the means of all, each also by its name: `report.ece`."""

    model: LabelsModel

    @property
    def sentence(self) -> str:
        """The verdict on all labels; those that are wrong come by name."""
        return verdict_line(self.model)

    @property
    def labels(self) -> Mapping[str, LabelFigures]:
        return {label.name: label for label in self.model.evaluation.labels}

    @property
    def metrics(self) -> Mapping[str, Measured]:
        """Means of the labels that can be measured."""
        return self.model.evaluation.mean

    def __getattr__(self, name: str) -> Measured:
        if name.startswith("_") or name == "model" or name not in self.metrics:
            raise AttributeError(f"LabelsReport has no {name!r}: each label has its own figures in .labels")
        return self.metrics[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.metrics})

    def to_dict(self) -> dict[str, Any]:
        return self.model.to_dict()

    def __repr__(self) -> str:
        return f"<LabelsReport of {self.sentence}>"

    def _repr_html_(self) -> str:
        rows = [_row("mean of labels", "", self.metrics, "")]
        rows += [
            _row(x.name, f"{x.rows:,}", x.metrics, WORDS[x.level])
            for x in sorted(self.labels.values(), key=lambda x: -x.metrics["ece"].value if x.metrics else 1.0)
        ]
        return html.table(_HEADS, rows, title=self.model.name, below=self.sentence)


def evaluate_independent(
    file: PredictionsFile, calibrator: Calibrator | str | Path | None, name: str | None, bins: int
) -> LabelsReport:
    return LabelsReport(judge_labels(file, calibrator, name=name or file.path.stem, bins=bins))


def fit_independent(
    file: PredictionsFile, method: str, target_prior: str | None, given: Mapping[str, Any]
) -> Calibrator:
    """`given`: what means something only where a row has one class."""
    refuse_exclusive(given)
    target = None if target_prior is None else base_rates_of(target_prior, file.source.class_names)
    return fit_labels_of(file, method, target=target)


def refuse_exclusive(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if value is not None:
            raise ConfigError("is for one class a row; the labels of these rows are independent", where=name)


def _row(name: str, rows: str, metrics: Mapping[str, Measured], words: str) -> tuple[str, ...]:
    if not metrics:
        return name, rows, *["-"] * 5, words
    e = metrics["ece"]
    span = "-" if e.low is None or e.high is None else f"{100 * e.low:.2f} .. {100 * e.high:.2f} %"
    null = "-" if e.null is None else f"{100 * e.null:.2f} %"
    shares = (f"{100 * metrics[k].value:.2f} %" for k in ("base_rate", "claimed", "ece"))
    return name, rows, *shares, span, null, words
