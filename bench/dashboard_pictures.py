"""The pictures of the dashboard in the guide and the README, and all pages to be looked at, from the folder of a demo.

    calibrant demo
    python bench/dashboard_pictures.py calibrant-demo                  # the six of docs/images
    python bench/dashboard_pictures.py calibrant-demo --all pictures   # every page, wide and narrow, light and dark

Needs playwright and a Chromium on the PATH.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from PIL import Image

DOCS = Path(__file__).resolve().parents[1] / "docs" / "images"
PATIENCE = 300_000  # milliseconds
FIRST_SCREEN = (1400, 1000)
SHRUNK = (1120, 800)

# name: (address, what has to be there, what is scrolled to the top)
SIX = {
    "overview": ("", "Accuracy", None),
    "reliability": ("reliability?run=heads/balanced", "What to do.", None),
    "decide": ("decide?run=model.onnx&wish=20", "Answered alone", None),
    "confusions": ("decide?run=model.onnx&decide=confusions&confusion=2-6", "the surest first", ".st-key-decide"),
    "try": ("try?model=model.onnx", "Do not rely on this answer", None),
    "production": ("production", "What changed since when?", None),
}
PAGES = {
    "overview": ("", "Accuracy", None),
    "overview-table": ("?as=table", "Compare", None),
    "overview-scatter": ("?as=scatter", "Compare", None),
    "reliability": ("reliability?run=run-ce&lower=classes", "What to do.", None),
    "decide": ("decide?run=model.onnx&wish=20", "Answered alone", None),
    "decide-confusions": ("decide?run=model.onnx&decide=confusions", "Answered as", None),
    "decide-sets": ("decide?run=model.onnx&decide=sets", "Answered alone", None),
    "training": ("training", "Accuracy and calibration by epoch", None),
    "laboratory": ("laboratory", "Train this head", None),
    "try": ("try?model=model.onnx&t=3", "Pictures whose answer changes", None),
    "production": ("production", "What changed since when?", None),
}
DRAWN = """() => {
    const app = document.querySelector('[data-testid=stApp]');
    return app && app.dataset.testScriptState === 'notRunning'
        && !document.querySelector('[data-testid=stSkeleton]') && !document.querySelector('[data-stale=true]')
        && !document.body.innerText.includes('Judging …')
        && [...document.images].every(i => i.complete && i.naturalWidth > 0);
}"""


def start(runs: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "calibrant", "dashboard", str(runs), "--port", "0", "--no-browser"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://\S+:\d+", line):
            return process, found[0]
    raise SystemExit("the dashboard did not start")


def page_of(browser: Any, width: int, height: int, *, dark: bool = False) -> Any:
    scheme = "dark" if dark else "light"
    size = {"width": width, "height": height}
    page = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce").new_page()
    page.set_default_timeout(PATIENCE)
    page.set_default_navigation_timeout(PATIENCE)
    return page


def visit(page: Any, url: str, asked: tuple[str, str, str | None], *, blank_sheet: bool = False) -> None:
    address, sign, top = asked
    page.goto(f"{url}/{address}", wait_until="domcontentloaded")
    if blank_sheet:
        stream = io.BytesIO()
        Image.new("RGB", (640, 480), "white").save(stream, "PNG")
        sheet = {"name": "blank-sheet.png", "mimeType": "image/png", "buffer": stream.getvalue()}
        page.locator("input[type=file]").set_input_files([sheet])
    page.get_by_text(sign).first.wait_for()
    page.wait_for_function(DRAWN)
    if top is not None:
        page.locator(top).first.evaluate("e => e.scrollIntoView()")
        page.wait_for_function(DRAWN)


def six(browser: Any, url: str, out: Path) -> None:
    for name, asked in SIX.items():
        page = page_of(browser, *FIRST_SCREEN)
        visit(page, url, asked, blank_sheet=name == "try")
        taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB").resize(SHRUNK, Image.Resampling.LANCZOS)
        # The cover of a colour space keeps a few orange marks on a grey page, which a median cut makes brown.
        taken = taken.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
        taken.save(out / f"dashboard-{name}.png", optimize=True)
        page.context.close()


def every_page(browser: Any, url: str, out: Path, only: list[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, asked in PAGES.items():
        if only and name not in only:
            continue
        for width, height in ((1400, 1000), (390, 844)):
            for dark in (False, True):
                page = page_of(browser, width, height, dark=dark)
                visit(page, url, asked)
                long = page.evaluate("() => document.querySelector('[data-testid=stMain]').scrollHeight")
                page.set_viewport_size({"width": width, "height": min(int(long) + 40, 6000)})
                page.wait_for_function(DRAWN)
                page.screenshot(path=str(out / f"{name}-{width}-{'dark' if dark else 'light'}.png"))
                page.context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path, help="what calibrant demo made")
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="every page in four variants, into this folder")
    parser.add_argument("--page", action="append", default=[], choices=list(PAGES), help="with --all: only this one")
    asked = parser.parse_args()
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    process, url = start(asked.demo)
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            if asked.all is None:
                six(browser, url, DOCS)
            else:
                every_page(browser, url, asked.all, asked.page)
            browser.close()
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
