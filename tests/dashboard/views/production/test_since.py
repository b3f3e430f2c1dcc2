"""The first words of Production: what changed, and since when."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.feedback import Model, read_feedback
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.dashboard.numbers import traffic
from calibrant.dashboard.views.production.since import what_changed

from ..conftest import Page, words

START = 1_767_225_600.0  # 2026-01-01 00:00 UTC
ROWS, TURN, STEP = 3000, 1500, 20.0  # the turn is at 08:20


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Calibrated answers; from the turn on half of the labels are any class."""
    folder = tmp_path_factory.mktemp("turn") / "feedback"
    rng = np.random.default_rng(1)
    logits = (2 * rng.normal(size=(ROWS, 4))).astype(np.float32)
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    wrong = (np.arange(ROWS) >= TURN) & (rng.random(ROWS) < 0.5)
    labels = np.where(wrong, rng.integers(0, 4, ROWS), labels)
    writer = FeedbackWriter(folder)
    identity = Model("birds", "1", "0" * 64, ("auk", "bittern", "crane", "dunlin"))
    for first in range(0, ROWS, 50):
        ids = [f"r{i}" for i in range(first, first + 50)]
        writer.predictions(
            identity, ids, [START + STEP * i for i in range(first, first + 50)], logits[first : first + 50]
        )
        writer.labels("birds", ids, labels[first : first + 50].tolist())
    writer.close()
    return folder


def test_the_moment_and_what_was_claimed_before_and_since_are_said(log: Path) -> None:
    (served,) = read_feedback(log).served
    found = traffic.summarise(served, None)
    text = what_changed(found)
    assert "Labels stopped to agree with the confidences **since 01 Jan 0" in text
    began = found.onsets["calibration"].began_time
    assert abs(began - (START + STEP * TURN)) < 200 * STEP
    right = found.predicted == found.labels
    before = found.times < began
    assert f"is right in {100 * right[before].mean():.1f} %" in text
    assert (
        f"claims {100 * found.confidence[~before].mean():.1f} % and is right in {100 * right[~before].mean():.1f}"
        in text
    )


def test_the_page_says_it_first_with_the_verdict_of_the_server(page: Page, log: Path) -> None:
    drawn = page("production", log.parent)
    text = words(drawn)
    assert text.index("**What changed since when?** Labels stopped") < text.index("of them labelled")
    (served,) = read_feedback(log).served
    assert traffic.summarise(served, None).verdict.sentence.split(":")[0] in text


def test_a_quiet_log_says_that_nothing_changed(page: Page, folder: Path) -> None:
    assert "**What changed since when?** Nothing" in words(page("production", folder))
