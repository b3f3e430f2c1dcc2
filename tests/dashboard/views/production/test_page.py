"""What was served, and what the labels say of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrant.artifacts.feedback import read_feedback

from ..conftest import Page, metric

V1 = Path(__file__).resolve().parents[3] / "golden" / "v1"


def test_accuracy_is_that_of_the_rows_whose_labels_have_come(page: Page, folder: Path) -> None:
    (served,) = read_feedback(folder / "leaves/feedback").served
    known = served.labels >= 0
    drawn = page("production", folder)
    assert metric(drawn, "Rows served") == "400"
    right = np.mean(served.logits[known].argmax(1) == served.labels[known])
    assert metric(drawn, "Accuracy, labelled rows") == f"{100 * right:.2f} %"
    assert any("200 of them labelled" in m.value for m in drawn.markdown)


def test_what_the_log_lacks_is_said(page: Page) -> None:
    """The old log has a line that was cut off, an id that came twice and a label of nobody."""
    said = [w.value for w in page("production", V1).warning]
    assert [text.split()[1] + " " + text.split()[2] for text in said] == [
        "damaged lines", "predictions came", "labels are"
    ]  # fmt: skip
    assert all(text.startswith("1 ") for text in said)


def test_without_a_log_it_says_how_to_have_one(page: Page, tmp_path: Path) -> None:
    assert "--feedback-log" in page("production", tmp_path).code[0].value
