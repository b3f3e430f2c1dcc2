"""Token pictures on the Training page."""

from __future__ import annotations

from pathlib import Path

from calibrant.dashboard.folder.index import scan
from calibrant.dashboard.views.tokens import counts

from .conftest import Page, words


def test_tokens_left_start_with_the_whole_grid_and_are_means_over_the_pictures(folder: Path) -> None:
    gallery = next(run.tokens for run in scan(folder).runs if run.name == "leaves")
    assert gallery is not None
    table = counts(gallery)
    assert table["block"].tolist() == [0, 4, 7, 10]  # counted from 1; 0 is the input
    assert table["tokens"].tolist() == [196.0, (98 + 97 + 96 + 95) / 4, (49 + 48 + 47 + 46) / 4, 25.0]


def test_a_picture_says_what_was_predicted_and_how_many_tokens_were_left(page: Page, folder: Path) -> None:
    text = words(page("training", folder, runs="leaves")).replace("\\", "")
    assert "p/0.png: 98 → 49 → 25 tokens" in text
    assert ":material/check: **leaf-00** 50.0 %" in text
    assert ":material/close: **leaf-00** 60.0 %; label: leaf-01" in text
    assert "Tokens that are kept" not in words(page("training", folder, runs="fedlas"))
