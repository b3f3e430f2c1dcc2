"""Fit, evaluate and compare, on predictions from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calibrant import html
from calibrant.api.labels import LabelsReport, evaluate_independent, fit_independent, refuse_exclusive
from calibrant.api.prediction import as_file
from calibrant.api.report import Report
from calibrant.artifacts.foreign.read import Asked
from calibrant.artifacts.predictions import PredictionsFile
from calibrant.calibration.calibrators import Calibrator
from calibrant.calibration.compare import Difference, in_order_of
from calibrant.calibration.compare import compare as compared
from calibrant.calibration.evaluate_files import evaluate_subjects
from calibrant.calibration.fitting import judged_fit
from calibrant.calibration.formula import Formula
from calibrant.calibration.metrics.table import metric
from calibrant.calibration.report.tables import number
from calibrant.calibration.softmax import softmax
from calibrant.calibration.subjects import Subject, View
from calibrant.errors import DataError


def fit(
    predictions: Any,
    labels: Any = None,
    *,
    method: str = "temperature",
    target_prior: str | None = None,
    adjust: float | None = None,
    options: Mapping[str, Any] | None = None,
    **reading: Any,
) -> Calibrator:
    """A calibrator of held-out predictions: a path, `load_predictions`' result, or scores and labels.

    `calibrator.probabilities(logits)` applies it, `calibrator.save("calibrator.json")` keeps it; its metrics are
    cross-fitted. `target_prior` and `adjust` are those of `calibrant calibrate`, `options` those of the method. All
    else is for `load_predictions`. Independent labels are fitted as `calibrant calibrate` fits them.
    """
    file = as_file(_validation(predictions), labels, independent=True, **reading)
    if file.source.independent:
        return fit_independent(file, method, target_prior, {"adjust": adjust, "options": options})
    return judged_fit(file, method, target_prior=target_prior, adjust=adjust, options=options).calibrator


def evaluate(
    predictions: Any,
    labels: Any = None,
    *,
    calibrator: Calibrator | str | Path | None = None,
    name: str | None = None,
    bins: int = 15,
    target_prior: str | None = None,
    adjust: float | None = None,
    **reading: Any,
) -> Report | LabelsReport:
    """Can the confidence be trusted? Verdict, and every metric with its interval and what chance would show.

    `report.ece.value`, `report.ece.low`, `report.verdict.sentence`; a notebook shows the whole. With a calibrator the
    predictions are judged through it. All else is for `load_predictions`. Rows that may have several labels give a
    `LabelsReport`: each label by itself, and the means of all.
    """
    file = as_file(predictions, labels, independent=True, **reading)
    if file.source.independent:
        refuse_exclusive({"target_prior": target_prior, "adjust": adjust})
        return evaluate_independent(file, calibrator, name, bins)
    stored = isinstance(calibrator, str | Path)
    found = Calibrator.load(calibrator) if isinstance(calibrator, str | Path) else calibrator
    formula = Formula.of(found, file.source, adjust=adjust, target_prior=target_prior, where=str(file.path))
    title = name or (file.path.stem if found is None else f"{file.path.stem}, {found.method}")
    view = View(title, formula, Path(calibrator) if stored else None)  # type: ignore[arg-type]
    subject = Subject(title, file.path, file, (view,))
    asked = None if file.shards else Asked()
    (model,) = evaluate_subjects([subject], bins=bins, target_prior=target_prior, adjust=adjust, asked=asked)
    if not file.shards and model.verdict is not None:  # a command could not name what lies in memory
        model = replace(model, verdict=model.verdict.without_commands())
    return Report(model)


class Comparison(dict[str, Difference]):
    """Differences by metric, second minus first, paired by row."""

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for key, d in self.items():
            unit = metric(key).unit
            span = "-" if d.low is None else f"{number(d.low, unit)} .. {number(d.high, unit)}"
            both = (number(d.first, unit), number(d.second, unit), number(d.difference, unit), span)
            rows.append((metric(key).name, *both, "yes" if d.clear else "no"))
        return rows

    _HEADERS = ("second minus first", "first", "second", "difference", "95 % interval", "beyond noise")

    def __repr__(self) -> str:
        from calibrant.progress import table

        return table(self._HEADERS, self._rows())

    def _repr_html_(self) -> str:
        return html.table(self._HEADERS, self._rows())


def compare(first: Any, second: Any, labels: Any = None, *, bins: int = 15, **reading: Any) -> Comparison:
    """Is the second better than the first, beyond noise? Differences with paired 95 % intervals.

    Both are predictions for the same rows, matched by their ids; or the second is a calibrator, and the first is
    compared with itself through it.
    """
    features = isinstance(second, Calibrator) and second.reads_features
    base = _labelled(as_file(first, labels, independent=True, **reading), features=features)
    if base.source.independent:
        return Comparison(_compared_labels(base, second, labels, bins, reading))
    if isinstance(second, Calibrator):
        probabilities = Formula.of(second, base.source).probabilities(base.logits, base.features)
    else:
        other = in_order_of(base, _labelled(as_file(second, labels, **reading)), "the second")
        if other.class_names != base.class_names:
            raise DataError("has other classes than the first", where="the second", fix="give models of one task")
        probabilities = softmax(other.logits)
    return Comparison(compared(softmax(base.logits), np.asarray(probabilities), base.labels, bins=bins))


def _compared_labels(
    base: Any, second: Any, labels: Any, bins: int, reading: Mapping[str, Any]
) -> dict[str, Difference]:
    from calibrant.calibration.independent.compare import compare_labels, same_rows

    z: Any
    if isinstance(second, Calibrator):
        z = second.logits(base.logits)
    else:
        z = same_rows(base, _labelled(as_file(second, labels, independent=True, **reading)), "the second").logits
    return compare_labels(base.logits, z, base.present, bins=bins, weights=base.weights)


def _labelled(file: PredictionsFile, *, features: bool = False) -> Any:
    found = file.read(features=features).labelled()
    if not len(found):
        raise DataError("no row has a label", where=file.path, fix="give labels")
    return found


def _validation(source: Any) -> Any:
    """A run folder stands for its validation predictions: those of the test set are for judging."""
    if isinstance(source, str | Path):
        inside = Path(source) / "predictions" / "val.parquet"
        return inside if inside.is_file() else source
    return source
