"""Colours and sizes, for the pages (Streamlit options) and for the charts. Contrast was measured in both themes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["light", "dark"]


@dataclass(frozen=True)
class Palette:
    """Blue is under-confident, orange over-confident; the two differ in shape as well wherever they are marks."""

    under: str
    over: str
    neutral: str
    band: str  # what chance explains
    text: str
    grid: str
    background: str
    series: tuple[str, ...]  # lines of several runs


LIGHT = Palette(
    "#1F6FB5",
    "#C4560A",
    "#6B7280",
    "#D5D9E0",
    "#555555",
    "#E6E8EC",
    "#FFFFFF",
    ("#1F6FB5", "#C4560A", "#2E7D4F", "#8E4FB8", "#8A6D00", "#B03A5B"),
)
DARK = Palette(
    "#4C9BE8",
    "#F28E2B",
    "#9AA0A6",
    "#3A3F4A",
    "#C9CDD3",
    "#2C313A",
    "#0E1117",
    ("#4C9BE8", "#F28E2B", "#62C48A", "#C08BE6", "#D9BC3F", "#EC7F9C"),
)


# What Streamlit has no option for. Its buttons over a chart or a table would cover what stands above it, and inside a
# chart the marks of the surest rows: those of a chart come into the gap below it. The button that opens the menu on a
# phone is a bare ">>".
STYLE = """<style>
[data-testid="stElementToolbar"] { top: 0.1rem; right: 0.1rem; }
[data-testid="stFullScreenFrame"]:has([data-testid="stVegaLiteChart"]) [data-testid="stElementToolbar"] {
    top: auto !important; bottom: -1.1rem;
}
[data-testid="stVegaLiteChart"] { margin-bottom: -1.2rem; }
[data-testid="stExpandSidebarButton"] { width: auto; }
[data-testid="stExpandSidebarButton"]::after { content: "Menu"; font-size: 0.95rem; margin-left: 0.3rem; }
[data-testid="stImage"] img { outline: 1px solid rgba(128, 128, 128, 0.35); }
[data-testid="stSidebarHeader"]::before { content: "Pages"; font-weight: 600; }
</style>"""


def palette(mode: str | None) -> Palette:
    return DARK if mode == "dark" else LIGHT


def streamlit_options() -> dict[str, object]:
    """Theme options as `streamlit run` flags name them, with "_" for the dots."""
    common = {
        "theme_baseFontSize": 15,
        "theme_metricValueFontSize": "1.6rem",
        "theme_paddingTop": "0.75rem",
        "theme_headingFontSizes": ["1.9rem", "1.4rem", "1.15rem", "1rem", "1rem", "1rem"],
        # Named so that a config.toml in a working directory cannot bring a font from elsewhere.
        "theme_font": "sans-serif",
        "theme_headingFont": "sans-serif",
        "theme_codeFont": "monospace",
    }
    light = {"primaryColor": LIGHT.under, "backgroundColor": LIGHT.background, "textColor": "#22262C"}
    dark = {"primaryColor": DARK.under, "backgroundColor": DARK.background, "textColor": "#E8EAED"}
    light |= {"secondaryBackgroundColor": "#F3F5F8", "orangeTextColor": LIGHT.over, "blueTextColor": LIGHT.under}
    dark |= {"secondaryBackgroundColor": "#1D222B", "orangeTextColor": DARK.over, "blueTextColor": DARK.under}
    return (
        common
        | {f"theme_light_{key}": value for key, value in light.items()}
        | {f"theme_dark_{key}": value for key, value in dark.items()}
    )
