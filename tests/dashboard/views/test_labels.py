"""Independent labels on the pages: a verdict, means, each label; pages about one answer say why they show nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant.calibration.independent.files import evaluate_labels
from calibrant.calibration.independent.report import verdict_line

from ..labelled import LABELS, write_labels
from .conftest import Page, frame, metric, words


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("labels")
    write_labels(found / "many")
    return found


def test_verdict_means_and_table_are_those_of_evaluate(page: Page, root: Path) -> None:
    drawn = page("reliability", root)
    before, after = evaluate_labels([root / "many/multi.npz"], [root / "many/calibrator.json"])
    text = words(drawn).replace("\\", "")
    assert verdict_line(after) in text
    assert "Did it help?" in text
    ece = [100 * m.evaluation.mean["ece"].value for m in (before, after)]
    assert metric(drawn, "ECE, mean of labels") == f"{ece[0]:.2f} → {ece[1]:.2f} %"
    table = frame(drawn, "Claimed (%)").set_index("Label")
    assert set(table.index) == set(LABELS)
    for label in after.evaluation.labels:
        assert table.loc[label.name, "ECE (%)"] == pytest.approx(100 * label.metrics["ece"].value)
        assert table.loc[label.name, "There (%)"] == pytest.approx(100 * label.metrics["base_rate"].value)


def test_without_the_calibrator_the_sharp_labels_are_not_to_be_trusted(page: Page, root: Path) -> None:
    drawn = page("reliability", root, calibrator="none", label="dog")
    assert "2 of 4: not to be trusted" in words(drawn)
    assert "Did it help?" not in words(drawn)
    assert drawn.selectbox(key="label").value == "dog"


def test_a_page_about_one_answer_says_why_there_is_none(page: Page, root: Path) -> None:
    drawn = page("decide", root)
    assert "a row may have several or none" in drawn.info[0].value
    for view in ("training", "try", "production", "laboratory"):
        page(view, root)
