"""How fast the Reliability page is on many predictions: first marks of a fresh server, a control, memory.

    python bench/dashboard.py --rows 1000000 --json dashboard.json
    python bench/dashboard.py --memory     # the server's memory alone, in half the time and on a machine that is busy

Needs playwright and a Chromium on the PATH. Times are wall-clock seconds as the reader of the page sees them, and other
work on the machine makes them longer. So the bars are ratios to an empty page, the Overview of a fresh server without
runs, loaded in turn with the page that is measured; of each the best of three.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.artifacts.predictions import PredictionsWriter, Source
from calibrant.calibration import fit
from calibrant.progress import table

CLASSES = 10
VISITS, MOVES = 3, 20
PATIENCE = 300_000  # milliseconds
FIRST, EMPTY, MEDIAN = "first marks, fresh server (s)", "empty page, fresh server (s)", "bins to number, median (s)"
BARS = {
    "first marks / empty page": 3.0, "bins, median / empty page": 0.6, "server memory (MB)": 350.0,
    "server memory with rows (MB)": 350.0,
}  # fmt: skip


def write_predictions(folder: Path, rows: int) -> None:
    """Over-confident logits, in parts, and a calibrator fitted on some of them."""
    rng = np.random.default_rng(0)
    source = Source(tuple(f"class {k}" for k in range(CLASSES)))
    part = 100_000
    with PredictionsWriter(folder / "predictions" / "test.parquet", source) as writer:
        for start in range(0, rows, part):
            n = min(part, rows - start)
            true = rng.normal(size=(n, CLASSES)) * rng.choice([0.6, 2.2, 4.0], size=(n, 1))
            labels = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
            logits = (2 * true).astype(np.float32)
            writer.append([f"{i:08d}.png" for i in range(start, start + n)], labels, logits)
    fit("temperature", logits, labels).save(folder / "calibrator.json")


def start(runs: Path) -> tuple[subprocess.Popen[str], str, float]:
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "calibrant", "dashboard", str(runs), "--port", "0", "--no-browser"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"http://\S+:\d+", line)
        if found:
            return process, found[0], time.monotonic() - begun
    raise SystemExit("the dashboard did not start")


def memory(process: subprocess.Popen[str]) -> float:
    import psutil

    return float(psutil.Process(process.pid).memory_info().rss) / 1e6


MARKS = "svg path[aria-roledescription=point]"


def visit(browser: Any, url: str, path: str = "reliability", shows: str = MARKS) -> tuple[Any, float]:
    page = browser.new_context(viewport={"width": 1400, "height": 1000}).new_page()
    page.set_default_timeout(PATIENCE)
    page.set_default_navigation_timeout(PATIENCE)
    begun = time.monotonic()
    page.goto(f"{url}/{path}", wait_until="commit")
    page.locator(shows).first.wait_for()
    return page, time.monotonic() - begun


def first_visits(browser: Any, runs: Path, empty: Path) -> dict[str, float]:
    """Fresh servers in turn: one without runs, one with the predictions, whose statistics are made by now."""
    seconds: dict[str, list[float]] = {EMPTY: [], FIRST: []}
    for _ in range(VISITS):
        for name, folder, path, shows in (
            (EMPTY, empty, "", "text=There are no runs"),
            (FIRST, runs, "reliability", MARKS),
        ):
            process, url, _ = start(folder)
            page, took = visit(browser, url, path, shows)
            seconds[name].append(took)
            page.close()
            process.terminate()
            process.wait()
    return {name: min(values) for name, values in seconds.items()}


IDLE = """() => document.querySelector('[data-testid=stApp]').dataset.testScriptState === 'notRunning'
    && !document.querySelector('[data-stale=true]')"""


def move_bins(page: Any, times: int) -> list[float]:
    """Seconds from the key to another ECE on the page."""
    # Numbers of the page: those in large type, and what each mark carries; at two decimals two settings can look alike.
    ece = """() => [...document.querySelectorAll('[data-testid=stMetricValue]')].map(e => e.innerText).join()
        + [...document.querySelectorAll('svg path[aria-roledescription=point]')].map(e => e.ariaLabel).join()"""
    slider = page.get_by_role("slider").first
    slider.focus()
    seconds = []
    for _ in range(times):
        page.wait_for_function(IDLE)
        before = page.evaluate(ece)
        begun = time.monotonic()
        slider.press("ArrowRight")
        page.wait_for_function(f"before => ({ece})() !== before", arg=before, polling=20)
        seconds.append(time.monotonic() - begun)
    return seconds


def switch_kind(page: Any, button: str, label: str) -> float:
    """Seconds from a click on another kind of diagram to its number."""
    begun = time.monotonic()
    page.get_by_text(button, exact=True).first.click()
    named = f"""() => [...document.querySelectorAll('[data-testid=stMetricLabel]')].some(
        e => e.innerText.trim() === '{label}')"""
    page.wait_for_function(named, polling=20)
    return time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--memory", action="store_true", help="the server's memory alone, no times beside another's")
    asked = parser.parse_args()
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        write_predictions(Path(folder) / "run", asked.rows)
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        found: dict[str, float] = {}
        # The first server makes the statistics; later ones find them.
        process, url, found["server ready (s)"] = start(Path(folder))
        page, found["first marks, statistics still to make (s)"] = visit(browser, url)
        process.terminate()
        process.wait()
        page.close()
        if not asked.memory:
            empty = Path(folder) / "empty"
            empty.mkdir()
            found |= first_visits(browser, Path(folder), empty)
        process, url, _ = start(Path(folder))
        page, _ = visit(browser, url)
        found["first marks, second visit (s)"] = visit(browser, url)[1]
        seconds = move_bins(page, 3 if asked.memory else MOVES)
        found[MEDIAN] = statistics.median(seconds)
        found["bins to number, worst (s)"] = max(seconds)
        if not asked.memory:
            found["first marks / empty page"] = found[FIRST] / found[EMPTY]
            found["bins, median / empty page"] = found[MEDIAN] / found[EMPTY]
        for button, label in (("equal rows", "Adaptive ECE after"), ("smooth", "Smooth ECE after")):
            found[f"to the {button} diagram (s)"] = switch_kind(page, button, label)
            found[f"back from {button} (s)"] = switch_kind(page, "equal width", "ECE after")
        found["server memory (MB)"] = memory(process)
        page.wait_for_function(IDLE)
        mark = page.locator(".st-key-diagram-after svg path[aria-roledescription=point]").nth(5)
        begun = time.monotonic()
        mark.click(force=True)
        page.get_by_text("rows, confidence after calibration").wait_for()
        found["click a bin to its rows (s)"] = time.monotonic() - begun
        found["server memory with rows (MB)"] = memory(process)
        process.terminate()
        browser.close()
    lines = [(k, f"{v:.2f}", f"{BARS[k]:g}" if k in BARS else "", "") for k, v in found.items()]
    lines = [(a, b, c, "" if not c else "ok" if float(b) <= float(c) else "missed") for a, b, c, _ in lines]
    print(f"{asked.rows:,} predictions x {CLASSES} classes")
    print(table(("", "measured", "bar", ""), lines))
    if asked.json:
        asked.json.write_text(json.dumps({"rows": asked.rows, "classes": CLASSES, **found}, indent=2))


if __name__ == "__main__":
    main()
