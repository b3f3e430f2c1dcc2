"""The numbers above the diagrams."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrant.artifacts.predictions import read_predictions

from .conftest import Page, metric


def percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def confidence_and_hits(run: Path) -> tuple[np.ndarray, np.ndarray]:
    data = read_predictions(run / "predictions/test.parquet")
    z = data.logits.astype(np.float64)
    p = np.exp(z - z.max(1, keepdims=True))
    return (p / p.sum(1, keepdims=True)).max(1), z.argmax(1) == data.labels


def test_with_one_bin_the_error_is_mean_confidence_less_accuracy(page: Page, folder: Path) -> None:
    confidence, hits = confidence_and_hits(folder / "fedlas")
    drawn = page("reliability", folder, run="fedlas", bins="1")
    assert metric(drawn, "Accuracy") == percent(hits.mean())
    assert metric(drawn, "ECE") == percent(abs(confidence.mean() - hits.mean()))


def test_with_a_calibrator_there_is_a_before_and_an_after(page: Page, folder: Path) -> None:
    drawn = page("reliability", folder, run="leaves", bins="1")
    confidence, hits = confidence_and_hits(folder / "leaves")
    assert metric(drawn, "ECE before") == percent(abs(confidence.mean() - hits.mean()))
    before, after = (float(metric(drawn, f"ECE {side}").split()[0]) for side in ("before", "after"))
    assert after < before
    assert " → " in metric(drawn, "NLL before → after")
    alone = page("reliability", folder, run="leaves", bins="1", calibrator="none")
    assert metric(alone, "ECE") == metric(drawn, "ECE before")


def test_rows_of_a_class_are_those_that_were_predicted_as_it(page: Page, folder: Path) -> None:
    data = read_predictions(folder / "fedlas/predictions/test.parquet")
    predicted = data.logits.argmax(1)
    drawn = page("reliability", folder, run="fedlas", rows="class-3")
    assert metric(drawn, "Right when predicted") == percent(np.mean(data.labels[predicted == 3] == 3))


def test_a_folder_without_predictions_says_how_to_make_some(page: Page, tmp_path: Path) -> None:
    drawn = page("reliability", tmp_path)
    assert drawn.code[0].value.startswith("calibrant predict ")
