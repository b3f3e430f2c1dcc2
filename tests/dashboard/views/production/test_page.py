"""What was served, and what the labels say of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrant.artifacts.feedback import Model, read_feedback
from calibrant.artifacts.feedback_logits import Kept
from calibrant.artifacts.feedback_writer import FeedbackWriter

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


def test_of_a_log_of_the_largest_logits_it_says_what_is_exact(page: Page, tmp_path: Path) -> None:
    rng, names = np.random.default_rng(0), tuple(f"class {k}" for k in range(12))
    logits = rng.normal(scale=3, size=(120, 12)).astype(np.float32)
    ids = [f"r{k}" for k in range(120)]
    for name, kept in (("whole", None), ("cut", Kept(top=5))):
        writer = FeedbackWriter(tmp_path / name / "log", kept=kept)
        writer.predictions(Model("m", "1", "ab", names), ids, np.arange(120.0).tolist(), logits)
        writer.labels("m", ids, logits.argmax(axis=1).tolist())
        writer.close()
        said = [c.value for c in page("production", tmp_path / name).caption if "5 largest of 12 logits" in c.value]
        assert len(said) == (name == "cut")
