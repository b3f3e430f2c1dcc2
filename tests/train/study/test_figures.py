"""The figures of a study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from calibrant.train.study.figures import write_figures
from calibrant.train.study.file import Figure
from tests.train.study.test_write import joined

FIGURES = [Figure("ece"), Figure("flips", "epochs", "flip_rate"), Figure("cost", "cost", "accuracy")]


def test_a_figure_is_drawn_where_there_is_something_to_show_and_twice_the_same(tmp_path: Path) -> None:
    curves = {"flip_rate": {"fedlas-ls": [0.4, 0.2, 0.1]}}
    names = write_figures(tmp_path, FIGURES, joined(), curves)
    assert names == ["ece.svg", "ece.png", "flips.svg", "flips.png"]
    text = (tmp_path / "ece.svg").read_text()
    assert "50 % better" in text
    assert "ECE (%)" in text
    assert "fedlas-ls" in (tmp_path / "flips.svg").read_text()
    write_figures(tmp_path / "again", FIGURES, joined(), curves)
    assert (tmp_path / "again" / "ece.svg").read_text() == text


def test_cost_needs_methods_whose_cost_was_measured(tmp_path: Path) -> None:
    study = joined()
    block = study.blocks[0]
    lines = tuple(replace(line, measured={"macs": 3e7, "image_seconds": 0.002}) for line in block.lines)
    measured = replace(study, blocks=(replace(block, lines=lines),))
    assert write_figures(tmp_path, FIGURES[2:], measured, {}) == ["cost.svg", "cost.png"]
    assert "million multiply-accumulates" in (tmp_path / "cost.svg").read_text()
