"""Every page, wide and light, narrow and dark: no exception, nothing cut, nothing from elsewhere; every chart as files;
every link. All four variants are for eyes: bench/dashboard_pictures.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from .browser import Server, Tab, cut_texts, new_tab, screenshot

pytestmark = pytest.mark.timeout(900)
PAGES = {
    "overview": "", "reliability": "reliability?lower=classes",
    "reliability-smooth": "reliability?run=leaves&of=smooth",
    "reliability-mass": "reliability?run=leaves&of=mass&bin=after-9", "training": "training",
    "decide": "decide?run=leaves&wish=20", "laboratory": "laboratory",
    "try": "try?t=3.5&prior=train", "production": "production",
}  # fmt: skip
_VARIANTS = [(1400, False), (390, True)]


def variant(page: str, width: int, dark: bool) -> Any:
    """By default each page wide and light, and the two with most on them narrow and dark; all others are slow."""
    quick = (width, dark) == (1400, False) or ((width, dark) == (390, True) and page in ("reliability", "production"))
    return pytest.param(page, width, dark, marks=() if quick else pytest.mark.slow)


def has_laboratory(runs: Path, page: str) -> None:
    if page == "laboratory" and not (runs / "features").exists():
        pytest.skip("needs torch to make features")


@pytest.mark.parametrize(("page", "width", "dark"), [variant(p, w, d) for p in PAGES for w, d in _VARIANTS])
def test_a_page_fits_and_is_sound(
    page: str, width: int, dark: bool, chromium: Any, server: Server, runs: Path, tmp_path: Path
) -> None:
    has_laboratory(runs, page)
    opened = new_tab(chromium, server, width=width, height=1000 if width > 500 else 844, dark=dark)
    opened.open(PAGES[page])
    if page != "laboratory":  # it has no chart
        opened.drawn()
    picture = screenshot(opened, page, width, dark, tmp_path)
    assert picture.stat().st_size > 10_000
    assert cut_texts(opened) == []
    opened.check()
    opened.page.context.close()


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if p != "laboratory"])
def test_every_chart_can_be_saved_as_png_svg_and_csv(page: str, tab: Tab) -> None:
    tab.open(PAGES[page])
    tab.drawn()
    charts = tab.page.locator("[data-testid=stVegaLiteChart]").count()
    keys = tab.page.locator("[class*=st-key-download-]").evaluate_all(
        "all => all.map(e => [...e.classList].find(c => c.startsWith('st-key-download-')))"
    )
    assert len(keys) > 0
    drawn = 0
    for key in dict.fromkeys(keys):
        tab.click(tab.page.locator(f".{key} button"))
        numbers = tab.button("Numbers as CSV")
        tab.see(numbers)
        labels = {"Numbers as CSV": b"\xef\xbb\xbf"}
        if tab.page.get_by_role("button", name="Chart as PNG").count():
            labels |= {"Chart as PNG": b"\x89PNG", "Chart as SVG": b"<svg"}
            drawn += 1
        for label, start in labels.items():
            with tab.page.expect_download() as waiting:
                tab.click(tab.button(label))
            data = Path(waiting.value.path()).read_bytes()
            assert data.startswith(start), (key, label)
            assert len(data) > (20 if start == b"\xef\xbb\xbf" else 2000), (key, label)
        tab.page.keyboard.press("Escape")
        tab.until(lambda numbers=numbers: not numbers.first.is_visible(), "the closed menu")
    # On the Reliability page a diagram and its histogram are one file.
    assert drawn == (charts // 2 if page.startswith("reliability") else charts)
    tab.check()


LINKS = {
    "overview": "?compare=fedlas|leaves",
    "reliability": "reliability?run=leaves&predictions=val&calibrator=none&bins=23&of=mass&target=uniform&bin=before-4",
    "reliability-smooth": "reliability?run=fedlas&of=smooth&rows=class-3&lower=under",
    "reliability-typed": "reliability?run=leaves&target=typed&weights=leaf-03%3D5&lower=numbers",
    "training": "training?runs=leaves",
    "decide": "decide?run=leaves&wish=20&wrong=7&handed=2&threshold=55.5&decide=sets&holds=0.8",
    "laboratory": "laboratory?switches=%7B%22head.kind%22%3A%22cosine%22%2C%22posthoc.adjust%22%3A1.5%7D&keep=on",
    "try": "try?t=4.5&strength=0.5&prior=one&common=leaf-04&share=70&abstain=60&sample=3&coverage=off",
    "production": "production?reference=none",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("page", LINKS)
def test_a_copied_address_shows_the_same_view(page: str, tab: Tab, chromium: Any, server: Server, runs: Path) -> None:
    has_laboratory(runs, page)

    def shown(of: Tab) -> tuple[Any, ...]:
        of.idle()
        inputs = of.page.locator("[data-testid=stMain] input").evaluate_all("all => all.map(e => e.value + e.checked)")
        sliders = of.page.get_by_role("slider").evaluate_all("all => all.map(e => e.ariaValueNow)")
        metrics = of.page.locator("[data-testid=stMetricValue]").all_inner_texts()
        tags = of.page.locator("[data-baseweb=tag], [aria-checked=true], code").all_inner_texts()
        marks = of.page.locator("[aria-roledescription=point]").evaluate_all("all => all.map(e => e.ariaLabel)")
        return inputs, sliders, metrics, tags, marks

    tab.open(LINKS[page].split("?")[0])
    default = shown(tab)
    tab.open(LINKS[page])
    first = shown(tab)
    assert first != default
    asked = {part.split("=", 1)[0] for part in LINKS[page].split("?", 1)[1].split("&")}
    tab.wait_for_address(*(f"{name}=" for name in asked))
    again = new_tab(chromium, server)
    again.open(tab.page.url.split("/", 3)[3])
    assert shown(again) == first
    assert asked <= set(re.findall(r"[?&](\w+)=", again.page.url))
    again.check()
    again.page.context.close()
    tab.check()
