"""A level is told by shape, colour and word."""

from __future__ import annotations

import pytest

pytest.importorskip("streamlit", reason="streamlit is not installed: pip install '.[dashboard]'")

from calibrant.calibration.verdict.verdict import LEVELS
from calibrant.dashboard.widgets.level import SHAPES, rank


def test_every_level_has_a_shape_and_a_colour_of_its_own() -> None:
    assert set(SHAPES) == set(LEVELS)
    shapes, colours = zip(*SHAPES.values(), strict=True)
    assert len(set(shapes)) == len(set(colours)) == len(LEVELS)


def test_the_worst_stands_first_and_what_is_not_known_last() -> None:
    assert sorted([None, "trusted", "not-trusted", "care"], key=rank) == ["not-trusted", "care", "trusted", None]  # type: ignore[arg-type]
