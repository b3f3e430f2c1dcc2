"""The first words of Production: what changed, and since when."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from calibrant.artifacts.feedback import read_feedback
from calibrant.dashboard.numbers import traffic
from calibrant.dashboard.views.production.since import what_changed

from ...conftest import TURN, TURN_START, TURN_STEP, write_turning_feedback
from ..conftest import Page, words


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("turn") / "feedback"
    write_turning_feedback(folder)
    return folder


def test_the_moment_and_what_was_claimed_before_and_since_are_said(log: Path) -> None:
    (served,) = read_feedback(log).served
    found = traffic.summarise(served, None)
    text = what_changed(found)
    assert "Labels stopped to agree with the confidences **since 01 Jan 0" in text
    began = found.onsets["calibration"].began_time
    assert abs(began - (TURN_START + TURN_STEP * TURN)) < 200 * TURN_STEP
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


def test_pictures_from_before_and_since_stand_there_where_the_ids_name_files_below_the_log(
    page: Page, tmp_path: Path
) -> None:
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 80, 40)).save(stream, "PNG")
    write_turning_feedback(tmp_path / "feedback", picture=stream.getvalue())
    drawn = page("production", tmp_path)
    assert "Since then, wrong answers first" in words(drawn)
    assert len(drawn.get("image")) == 10


def test_ids_that_name_no_picture_are_told_what_to_send(page: Page, log: Path) -> None:
    drawn = page("production", log.parent)
    assert "below the folder of the log, as its id" in words(drawn)
    assert not drawn.get("image")


def test_a_quiet_log_says_that_nothing_changed(page: Page, folder: Path) -> None:
    assert "**What changed since when?** Nothing" in words(page("production", folder))
