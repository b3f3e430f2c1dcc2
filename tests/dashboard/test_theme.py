"""Colours that can be read, in both themes."""

from __future__ import annotations

import pytest

from calibrant.dashboard.theme import DARK, LIGHT, Palette, palette, streamlit_options


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_marks_stand_out_from_the_page(colours: Palette) -> None:
    assert contrast(colours.text, colours.background) >= 4.5
    for mark in (colours.under, colours.over, *colours.series):
        assert contrast(mark, colours.background) >= 3
    assert len(set(colours.series)) == len(colours.series)


def test_the_theme_is_that_of_the_reader_and_light_where_it_is_not_known() -> None:
    assert (palette("dark"), palette("light"), palette(None)) == (DARK, LIGHT, LIGHT)


def test_streamlit_gets_the_same_colours_and_no_font_from_elsewhere() -> None:
    found = streamlit_options()
    assert found["theme_light_primaryColor"] == LIGHT.under
    assert found["theme_dark_backgroundColor"] == DARK.background
    assert found["theme_font"] == "sans-serif"
