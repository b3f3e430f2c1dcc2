"""The rows and classes below the diagrams."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import read_predictions

from .conftest import Page, frame, words
from .test_reliability import confidence_and_hits


def test_the_most_over_confident_row_is_wrong_and_surest_of_all_that_are(page: Page, folder: Path) -> None:
    confidence, hits = confidence_and_hits(folder / "fedlas")
    table = frame(page("reliability", folder, run="fedlas", lower="over"), "confidence (%)")
    assert (table["label"] != table["predicted"]).all()
    wrong = np.sort(confidence[~hits])[::-1]
    np.testing.assert_allclose(table["confidence (%)"], 100 * wrong[: len(table)], atol=1e-3)


def test_the_most_under_confident_row_is_right_and_least_sure(page: Page, folder: Path) -> None:
    confidence, hits = confidence_and_hits(folder / "fedlas")
    table = frame(page("reliability", folder, run="fedlas", lower="under"), "confidence (%)")
    assert (table["label"] == table["predicted"]).all()
    np.testing.assert_allclose(table["confidence (%)"], 100 * np.sort(confidence[hits])[: len(table)], atol=1e-3)


def test_the_table_of_classes_counts_recall_and_precision(page: Page, folder: Path) -> None:
    data = read_predictions(folder / "fedlas/predictions/test.parquet")
    predicted = data.logits.argmax(1)
    table = frame(page("reliability", folder, run="fedlas", lower="classes"), "Recall (%)")
    for k, line in table.iterrows():
        assert line["Recall (%)"] == pytest.approx(100 * np.mean(predicted[data.labels == k] == k))
        assert line["Precision (%)"] == pytest.approx(100 * np.mean(data.labels[predicted == k] == k))


def test_pictures_are_shown_with_the_verdict_where_they_are_at_hand(page: Page, folder: Path) -> None:
    text = words(page("reliability", folder, run="leaves", lower="over"))
    assert ":material/close:" in text
    assert ":material/check:" not in text
    assert "label: leaf" in text
