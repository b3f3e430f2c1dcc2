"""The lower part of Decide."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrant.artifacts.predictions import read_predictions

from ..conftest import Page, words


def test_a_confusion_in_the_address_shows_its_rows(page: Page, folder: Path) -> None:
    data = read_predictions(folder / "fedlas/predictions/test.parquet")
    predicted = data.logits.argmax(axis=1)
    wrong = np.flatnonzero(predicted != data.labels)
    i, j = int(data.labels[wrong[0]]), int(predicted[wrong[0]])
    drawn = page("decide", folder, run="fedlas", predictions="test", decide="confusions", confusion=f"{i}-{j}")
    rows = int(((data.labels == i) & (predicted == j)).sum())
    name = (f"leaf\\-{i:02d}", f"leaf\\-{j:02d}")
    assert f"**{rows:,} rows of {name[0]}, answered as {name[1]}**" in words(drawn)


def test_pictures_stand_on_both_sides_of_the_line(page: Page, folder: Path) -> None:
    text = words(page("decide", folder, run="leaves", threshold="60"))
    assert "**Just above**: answered alone" in text
    assert "**Just below**: handed to a human" in text
    assert "There is none" in words(page("decide", folder, run="leaves", threshold="0"))


def test_sets_say_their_size_and_how_often_they_hold_the_truth(page: Page, folder: Path) -> None:
    text = words(page("decide", folder, run="leaves", decide="sets", holds="0.8"))
    assert "classes** on average" in text
    assert "these were fitted on 200 rows" in text
