"""Does a deployed file say on images what the predictions file of its run says? Winners, NLL and ECE are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.predictions import Predictions, read_predictions
from calibrant.calibration.formula import Formula
from calibrant.calibration.metrics import accuracy, ece, nll
from calibrant.errors import DataError
from calibrant.export.checks.parity import answers, session, steady_rows
from calibrant.export.graph.assemble import knob_defaults
from calibrant.images.image_set import ImageSet
from calibrant.images.listing import ImageListing

# Predictions may come from a GPU or another torch; graph and formula on the same logits agree to 1e-5.
PROBABILITIES = 1e-3
METRICS = 1e-3


def find_predictions(run: Path) -> Path | None:
    """The run's own predictions, of the test images if there are any."""
    files = [run / "predictions" / f"{split}.parquet" for split in ("test", "val")]
    return next((f for f in files if f.is_file()), None)


def check_predictions(
    path: Path, predictions: Path, images: ImageListing, *, limit: int = 256
) -> dict[str, Any] | None:
    """The comparison as JSON, on up to `limit` rows whose image is among `images`; None where there is none."""
    from calibrant.artifacts.onnx_file import OnnxFile

    card = OnnxFile.open(path).card()
    rows = read_predictions(predictions, features=Formula.of_card(card).reads_features)
    if Formula.of_card(card).reads_features and rows.features is None:
        return None
    if len(rows.class_names) != len(card.classes):
        raise DataError(f"has {len(rows.class_names)} classes, the file {len(card.classes)}", where=predictions)
    sha, known = rows.source.model.get("sha256"), card.source.get("checkpoint_sha256")
    if sha is not None and known is not None and sha != known:
        raise DataError("was written by another model than the file's", where=predictions)
    whole = images.whole()
    place = {name: i for i, name in enumerate(whole.ids)}
    index = np.flatnonzero([name in place for name in rows.ids])
    if not len(index):
        return None
    index = index[np.unique(np.linspace(0, len(index) - 1, limit).astype(int))]
    chosen = whole.rows(np.asarray([place[rows.ids[i]] for i in index]))
    return _compare(path, card, rows.rows(index), chosen) | {"file": predictions.name, "rows": len(index)}


def _compare(path: Path, card: ModelCard, rows: Predictions, images: ImageSet) -> dict[str, Any]:
    formula = Formula.of_card(card)  # predictions hold the logits with gauge and class temperatures in
    pixels = np.stack([card.preprocessing.pixels(images.image(i)) for i in range(len(images))])
    x = pixels if card.input.dtype == "uint8" else card.preprocessing.normalise(pixels)
    _, got = answers(session(path), x, 16, knob_defaults(card))
    expected = formula.probabilities(rows.logits, rows.features)
    bends = formula.calibrator is not None and formula.calibrator.as_affine() is None
    steady = np.ones(len(got), bool)
    if bends:
        steady = steady_rows(lambda z: formula.logits(z, rows.features), rows.logits.astype(np.float64))
    top = np.sort(expected, axis=1)
    clear = (top[:, -1] - top[:, -2] > 4 * PROBABILITIES) & steady
    found: dict[str, Any] = {
        "max_diff": float(np.abs(got - expected)[steady].max()),
        "top1_equal": bool(np.all((got.argmax(1) == expected.argmax(1))[clear])),
    }
    passed = found["max_diff"] <= PROBABILITIES and found["top1_equal"]
    known = rows.labels >= 0
    if known.any():
        for name, metric in (("accuracy", accuracy), ("nll", nll), ("ece", ece)):
            found[name] = {
                "torch": metric(expected[known], rows.labels[known]),
                "graph": metric(got[known], rows.labels[known]),
            }
        passed = passed and all(abs(found[m]["torch"] - found[m]["graph"]) <= METRICS for m in ("nll", "ece"))
    return {**found, "passed": bool(passed)}


def line(found: dict[str, Any]) -> str:
    """The comparison in one line."""
    text = f"{found['file']}, {found['rows']} images: largest difference {found['max_diff']:.1e}"
    for name in ("accuracy", "nll", "ece"):
        if name in found:
            shown = name if name == "accuracy" else name.upper()
            text += f", {shown} {found[name]['torch']:.4f} / {found[name]['graph']:.4f}"
    return text + (" (torch / graph)" if "nll" in found else "") + ("" if found["passed"] else "  FAILED")
