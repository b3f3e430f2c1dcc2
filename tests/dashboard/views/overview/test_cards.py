"""A card says what `calibrant evaluate` says of its subject."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calibrant.calibration.evaluate_files import evaluate_files
from calibrant.dashboard.numbers import verdicts
from calibrant.dashboard.widgets.markdown_escape import plain
from calibrant.errors import DataError

from ..conftest import Page, frame, words


def test_each_card_has_the_verdict_of_the_command(page: Page, folder: Path) -> None:
    drawn = page("overview", folder)
    text = words(drawn)
    for name, calibrators in (("leaves", [folder / "leaves/calibrator.json"]), ("fedlas", [])):
        (*_, model) = evaluate_files([folder / name / "predictions/test.parquet"], calibrators)
        assert model.verdict is not None
        assert plain(model.verdict.sentence) in text
    assert {"open-leaves|leaves/calibrator.json", "open-fedlas|"} <= {b.key for b in drawn.button}


@pytest.fixture
def anew() -> Iterator[None]:
    verdicts._found.clear()
    yield
    verdicts._found.clear()


@pytest.mark.parametrize("how", ["table", "scatter"])
def test_verdicts_are_worked_out_however_the_lines_are_shown(page: Page, folder: Path, anew: None, how: str) -> None:
    page("overview", folder, **{"as": how})
    assert frame(page("overview", folder, **{"as": "table"}), "Verdict")["Verdict"].notna().all()


def test_what_cannot_be_judged_is_said_once_and_not_tried_for_ever(
    page: Page, folder: Path, anew: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def fails(scored: Any) -> Any:
        tried.append(scored)
        if len(tried) > 20:
            raise RuntimeError("again and again")
        raise DataError("no longer what it was")

    monkeypatch.setattr(verdicts, "verdict", fails)
    assert words(page("overview", folder)).count("no longer what it was") == len(tried) == 3


def test_the_name_stands_first_on_each_card(page: Page, folder: Path) -> None:
    text = words(page("overview", folder))
    (*_, model) = evaluate_files([folder / "fedlas/predictions/test.parquet"], [])
    assert model.verdict is not None
    assert text.index("**fedlas**") < text.index(plain(model.verdict.sentence))
    assert "300 rows of test" in text
