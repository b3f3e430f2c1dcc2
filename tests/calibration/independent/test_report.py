"""The verdict names the labels that are wrong; the page needs nothing from elsewhere."""

from __future__ import annotations

import numpy as np

from calibrant.calibration.independent.files import LabelsModel
from calibrant.calibration.independent.measure import measure_labels
from calibrant.calibration.independent.report import html_report, text_report, verdict_line


def model() -> LabelsModel:
    p = np.tile([0.02, 0.2], (1000, 1))
    present = np.zeros((1000, 2), np.int8)
    present[:20] = 1
    return LabelsModel("a.npz", measure_labels(np.log(p / (1 - p)), present, ["right", "<high>"]))


def test_the_sentence() -> None:
    said = verdict_line(model())
    assert said.startswith("a.npz: 1 of 2 labels have probabilities that can be trusted to 5 points (1,000 rows)")
    assert "not to be trusted: <high>" in said


def test_the_worst_label_comes_first() -> None:
    lines = text_report([model()]).splitlines()
    names = [line.split()[0] for line in lines if line.startswith(("right", "<high>"))]
    assert names == ["<high>", "right"]
    assert any("18.00 %" in line for line in lines)
    # one bin: sqrt(2 / pi) sqrt(.2 * .8 / 1000)
    assert next(line for line in lines if line.startswith("<high>")).count("; 1.01 %)") == 1


def test_names_are_text_on_the_page() -> None:
    page = html_report([model()], title="t", made="now")
    assert "&lt;high&gt;" in page
    assert "<high>" not in page
    assert "http" not in page
    assert page.count("<svg") == 2
