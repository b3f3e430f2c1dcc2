"""`calibrant predict` of a file that takes rows of numbers: a table through it, read as features are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from calibrant.artifacts.foreign.feature_table import read_features
from calibrant.artifacts.predictions import Predictions
from calibrant.errors import ModelError
from calibrant.serve.batch.order import own_logits, source_of
from calibrant.serve.engine.classifier import load


def predict_rows(
    model: str | Path,
    data: str | Path,
    out: Path,
    *,
    split: str = "test",
    features: bool = False,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
) -> Path:
    """Writes the predictions; the table's split of that name where it is divided, else all of it."""
    classifier = load(model, providers=providers, threads=threads)
    table = read_features(data, class_names=classifier.class_names).of_split(split)
    outputs = classifier.outputs(classifier.rows(table.features))
    if features and "features" not in outputs:
        raise ModelError("has no output `features`", where=model, fix="export it with --features")
    source = source_of(classifier)
    Predictions(
        table.ids,
        table.labels,
        own_logits(classifier, outputs["logits"]),
        replace(source, model={**source.model, "onnx_sha256": classifier.session.sha256()}),
        np.asarray(outputs["features"], np.float32) if features else None,
        (split,) * len(table),
        groups=table.groups,
    ).write(out)
    return out
