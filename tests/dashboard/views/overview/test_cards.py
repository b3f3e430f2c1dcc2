"""A card says what `calibrant evaluate` says of its subject."""

from __future__ import annotations

from pathlib import Path

from calibrant.calibration.evaluate_files import evaluate_files
from calibrant.dashboard.widgets.markdown_escape import plain

from ..conftest import Page, words


def test_each_card_has_the_verdict_of_the_command(page: Page, folder: Path) -> None:
    drawn = page("overview", folder)
    text = words(drawn)
    for name, calibrators in (("leaves", [folder / "leaves/calibrator.json"]), ("fedlas", [])):
        (*_, model) = evaluate_files([folder / name / "predictions/test.parquet"], calibrators)
        assert model.verdict is not None
        assert plain(model.verdict.sentence) in text
    assert {"open-leaves|leaves/calibrator.json", "open-fedlas|"} <= {b.key for b in drawn.button}
