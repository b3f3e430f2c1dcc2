"""Predictions for the other functions: read from anywhere, taken from memory, or made by a model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.artifacts.foreign.columns import Columns, from_objects, text_column
from calibrant.artifacts.foreign.kinds import Kind
from calibrant.artifacts.foreign.outcome import Outcome
from calibrant.artifacts.foreign.read import Asked, from_columns
from calibrant.artifacts.foreign.roles import Named
from calibrant.artifacts.predictions import Predictions, PredictionsFile
from calibrant.calibration.subjects import of_run
from calibrant.errors import DataError

IN_MEMORY = Path("predictions")  # where messages say that something is, which lies nowhere


def load_predictions(
    source: Any,
    labels: Any = None,
    *,
    class_names: Sequence[str] | None = None,
    kind: Kind | None = None,
    outcome: Outcome | None = None,
    train_prior: Sequence[float] | None = None,
    scores: str | Sequence[str] = (),
    label: str | None = None,
    id: str | None = None,
    weight: str | None = None,
    group: str | Sequence[str] = (),
    features: bool = False,
) -> Predictions:
    """Predictions of any model, from a file, a run folder or memory.

    source: a path (our Parquet, npz, npy, CSV, TSV, foreign Parquet, JSON lines, .pt, a run folder), a table (pandas,
    polars, pyarrow, a dict of columns), or scores (N, C) as an array or tensor, then with `labels`: numbers, names of
    classes, or one-hot. Logits and probabilities are told apart; `kind` says it where that cannot be told. `scores`,
    `label`, `id`, `weight` and `group` name columns where their names do not say what they are.
    """
    if isinstance(source, Predictions):
        return source
    asked = Asked(
        kind,
        outcome,
        Named(_names(scores), label, id, weight, _names(group)),
        None if class_names is None else tuple(map(str, class_names)),
        None if train_prior is None else tuple(map(float, train_prior)),
    )
    if isinstance(source, str | Path):
        if labels is not None:
            raise DataError("is a file, which brings its own labels", where=source, fix="give arrays, or no labels")
        return PredictionsFile.open(of_run(Path(source))[0], asked=asked, independent=True).read(features=features)
    columns, own = _table(source), _class_names(source)
    if columns is None:
        columns = {_called(kind): _scores(source)}
    if labels is not None:
        _check_order(source, labels)
        columns = {**columns, "label": _column("label", labels)}
    return from_columns(Columns(columns, own), IN_MEMORY, asked).predictions


def as_file(source: Any, labels: Any = None, *, independent: bool = False, **asked: Any) -> PredictionsFile:
    """What the functions of `calibration` take: a file where it is one, else the same in memory.

    `independent`: the caller knows what to do with independent labels; else they are refused."""
    if isinstance(source, str | Path) and labels is None and not asked:
        return PredictionsFile.open(of_run(Path(source))[0], independent=independent)
    found = load_predictions(source, labels, **asked)
    if found.source.independent and not independent:
        raise DataError(
            "holds independent labels (sigmoid), and the other has one class a row",
            where=IN_MEMORY,
            fix="compare what is of one task",
        )
    return PredictionsFile.in_memory(found, IN_MEMORY)


def predict(model: Any, data: str | Path, *, split: str = "test", features: bool = False) -> Predictions:
    """Predictions of a run folder, or of a deployed .onnx file, for pictures in any layout, with their labels.

    The logits are the model's own, so that calibrators can be fitted on them.
    """
    path = Path(getattr(model, "path", model))
    with tempfile.TemporaryDirectory(prefix="calibrant-") as folder:
        out = Path(folder) / "predictions.parquet"
        if path.is_dir():
            from calibrant.train.predict import predict_run

            predict_run(path, data, out, split=split, features=features)
        else:
            from calibrant.serve.batch.predict import predict_model

            predict_model(path, data, out, split=split, features=features)
        return PredictionsFile.open(out).read(features=features)


def to_numpy(values: Any) -> np.ndarray[Any, Any]:
    """Arrays, lists and tensors of any library, wherever they lie."""
    if hasattr(values, "detach"):  # torch, without importing it; bfloat16 has no numpy
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() else values
    return np.asarray(values)


def _scores(source: Any) -> np.ndarray[Any, Any]:
    values = to_numpy(source)
    if values.ndim == 0 or np.iscomplexobj(values):
        what = "complex numbers" if values.ndim else f"a {type(source).__name__}"
        fix = "give source.toarray()" if hasattr(source, "toarray") else "give an array of numbers, a row for each case"
        raise DataError(f"scores are {what}", where=IN_MEMORY, fix=fix)
    return values


def _check_order(source: Any, labels: Any) -> None:
    """Rows of pandas have names: the same ones in another order are other rows, and by position all would be wrong."""
    first: Any = getattr(source, "index", None)
    second: Any = getattr(labels, "index", None)
    if not (hasattr(first, "equals") and hasattr(second, "equals")) or len(first) != len(second):
        return
    if not first.equals(second) and first.is_unique and first.isin(second).all():
        raise DataError(
            "the labels have the index of the scores in another order",
            where=IN_MEMORY,
            fix="labels.loc[scores.index], or labels.to_numpy() where their positions are the scores'",
        )


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _called(kind: Kind | None) -> str:
    return "logits" if kind is None else "scores"


def _table(source: Any) -> dict[str, Any] | None:
    """The columns of a table of any library, by name; None where it is none."""
    if hasattr(source, "column_names") and hasattr(source, "to_pydict"):  # pyarrow
        source = source.to_pydict()
    elif hasattr(source, "column_names") and hasattr(source, "to_dict"):  # Hugging Face's datasets
        source = source.to_dict()
    elif hasattr(source, "columns") and hasattr(source, "index"):  # pandas
        source = {str(name): source[name] for name in source.columns}
    elif hasattr(source, "get_columns"):  # polars
        source = {column.name: column for column in source.get_columns()}
    elif hasattr(source, "label_ids") and hasattr(source, "predictions"):  # Hugging Face's Trainer.predict
        found = source.predictions[0] if isinstance(source.predictions, tuple) else source.predictions
        source = {"logits": found, **({} if source.label_ids is None else {"label": source.label_ids})}
    if not isinstance(source, Mapping):
        return None
    return {str(name): _column(str(name), values) for name, values in source.items()}


def _class_names(source: Any) -> tuple[str, ...] | None:
    """Of a data set of Hugging Face's, whose label column knows them."""
    features = getattr(source, "features", None)
    names = getattr(features.get("label"), "names", None) if isinstance(features, Mapping) else None
    return None if names is None else tuple(map(str, names))


def _column(name: str, values: Any) -> np.ndarray[Any, Any]:
    array = to_numpy(values)
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind in "US":
        return text_column(array.tolist())
    listed = [v.tolist() if hasattr(v, "tolist") else v for v in array.tolist()]
    return from_objects(listed, name=name, where=IN_MEMORY)
