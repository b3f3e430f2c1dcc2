"""The Decide page: one line, what it brings, and the lines that it offers."""

from __future__ import annotations

from pathlib import Path

from calibrant.artifacts.predictions import read_predictions
from calibrant.calibration import Calibrator
from calibrant.calibration.conformal.abstain import abstain_for_risk

from ..conftest import Page, metric, words


def test_the_numbers_of_a_line_are_those_of_the_rows(page: Page, folder: Path) -> None:
    data = read_predictions(folder / "leaves/predictions/test.parquet")
    probs = Calibrator.load(folder / "leaves/calibrator.json").probabilities(data.logits)
    right = probs.argmax(axis=1) == data.labels
    taken = probs.max(axis=1) >= 0.6
    drawn = page("decide", folder, run="leaves", predictions="test", threshold="60", wrong="10", handed="2")
    assert metric(drawn, "Answered alone") == f"{100 * taken.mean():.2f} %"
    assert metric(drawn, "Wrong among the answered") == f"{100 * (~right[taken]).mean():.2f} %"
    assert metric(drawn, "Wrong, of 1,000 pictures") == f"{1000 * (taken & ~right).mean():.1f}"
    cost = 1000 * (10 * (taken & ~right).sum() + 2 * (~taken).sum()) / len(right)
    assert metric(drawn, "Cost of 1,000 pictures") == f"{cost:,.0f}"


def test_the_proven_line_is_offered_and_taken_with_a_click(page: Page, folder: Path) -> None:
    data = read_predictions(folder / "leaves/predictions/test.parquet")
    probs = Calibrator.load(folder / "leaves/calibrator.json").probabilities(data.logits)
    proven = abstain_for_risk(probs, data.labels, risk=0.25)
    drawn = page("decide", folder, run="leaves", predictions="test", threshold="10", wish="25")
    assert "**At most 25 % wrong**" in words(drawn)
    drawn.button(key="take-proven").click().run()
    assert [e.value for e in drawn.exception] == []
    assert metric(drawn, "Answered alone") == f"{100 * proven.coverage:.2f} %"
    assert "**Moved from 10.0 % to" in words(drawn)


def test_a_wish_that_the_rows_cannot_show_is_refused_in_words(page: Page, folder: Path) -> None:
    drawn = page("decide", folder, run="leaves", wish="0.1")
    assert "cannot show an error rate" in words(drawn)


def test_nothing_to_decide_on_says_what_to_run(page: Page, tmp_path: Path) -> None:
    assert page("decide", tmp_path).code[0].value.startswith("calibrant predict")
