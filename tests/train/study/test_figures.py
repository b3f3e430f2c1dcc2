"""The figures of a study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrant.train.study.figures import Shown, rank_correlation, write_figures
from calibrant.train.study.file import Figure
from tests.train.study.test_write import joined

FIGURES = [Figure("ece"), Figure("flips", "epochs", "flip_rate"), Figure("cost", "cost", "accuracy")]


def test_a_figure_is_drawn_where_there_is_something_to_show_and_twice_the_same(tmp_path: Path) -> None:
    curves = Shown({"flip_rate": {"fedlas-ls": [0.4, 0.2, 0.1]}})
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
    assert write_figures(tmp_path, FIGURES[2:], measured, Shown()) == ["cost.svg", "cost.png"]
    assert "million multiply-accumulates" in (tmp_path / "cost.svg").read_text()


def test_norms_have_a_panel_a_method_and_smoothing_a_curve_a_sign(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    norm = rng.normal(20, 3, 200)
    shown = Shown(norms={"ce": (norm, norm / 40, norm > 20)}, smoothing={"fedlas-ls": (0.05, 4.0)})
    figures = [Figure("norms", "norms"), Figure("smoothing", "smoothing")]
    assert write_figures(tmp_path, figures, joined(), Shown()) == []
    write_figures(tmp_path, figures, joined(), shown)
    assert "ce: rank correlation +1.00" in (tmp_path / "norms.svg").read_text()
    assert "fedlas-ls, under-confident" in (tmp_path / "smoothing.svg").read_text()


def test_rank_correlation_of_known_orders() -> None:
    assert rank_correlation(np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4])) == pytest.approx(0.8)
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([1.0, 1, 1])) == 0.0
