"""A real server in front of a real headless Chromium, and what the tests ask of a page. Waits on conditions only."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from calibrant.calibration.cli.evaluate import evaluate

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 180_000  # milliseconds: a machine with other work is slow, not wrong
# Looks, a tenth of a second or more apart, at a page that asks the server for nothing and does not change: what is not
# there by then does not come. Looks, not seconds: a machine with other work looks less often.
STILL_LOOKS = 300
_STATE = """() => {
    const app = document.querySelector('[data-testid=stApp]');
    return {
        raised: [...document.querySelectorAll('[data-testid=stException]')].map(e => e.innerText),
        idle: !!app && app.dataset.testScriptState === 'notRunning' && app.dataset.testConnectionState === 'CONNECTED',
        text: document.body ? document.body.innerText : '',
    };
}"""
_DRAWN = """() => {
    const app = document.querySelector('[data-testid=stApp]');
    return app && app.dataset.testScriptState === 'notRunning'
        && app.dataset.testConnectionState === 'CONNECTED'
        && !document.querySelector('[data-testid=stSkeleton]')
        && !document.querySelector('[data-stale=true]')
        && [...document.images].every(i => i.complete && i.naturalWidth > 0);
}"""


@dataclass
class Server:
    """`calibrant dashboard` in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    lines: list[str] = field(default_factory=list)
    reader: threading.Thread | None = None

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(60)
        if self.reader is not None:
            self.reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    @property
    def log(self) -> str:
        return "".join(self.lines)


def start_server(runs: Path, *arguments: str, cwd: Path | None = None) -> Server:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "calibrant", "dashboard", str(runs), "--port", "0", "--no-browser", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        cwd=cwd or runs,
    )  # fmt: skip
    server = Server(process, "")
    ready = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            server.lines.append(line)
            found = re.search(r"http://\S+:\d+", line)
            if found and not server.url:
                server.url = found[0]
                ready.set()
        ready.set()

    server.reader = threading.Thread(target=read, daemon=True)
    server.reader.start()
    if not ready.wait(180) or not server.url:
        server.stop()
        raise RuntimeError(f"the dashboard did not start:\n{server.log}")
    return server


@dataclass
class Tab:
    """A page that remembers what went wrong on it."""

    page: Any
    server: Server
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def open(self, path: str, *, wait_for: str | None = None) -> None:
        self.page.goto(f"{self.server.url}/{path.lstrip('/')}", wait_until="domcontentloaded")
        self.see(self.page.locator("h1"))
        if wait_for:
            self.see(wait_for)
        self.idle()

    # ---- waiting: for conditions, and no longer than they can still come true ----

    def until(self, met: Callable[[], object], what: str) -> None:
        """Until it is met. Says what the page showed instead, at once where it raised, soon where it stands still."""
        begun = changed = time.monotonic()
        still, before = 0, None
        while not met():
            state, now = self.page.evaluate(_STATE), time.monotonic()
            if state["text"] != before:
                before, changed, still = state["text"], now, 0
            still = still + 1 if state["idle"] else 0
            if state["raised"]:
                self._give_up(f"the page raised, waiting for {what}", "\n".join(state["raised"]))
            if self.server.process.poll() is not None:
                self._give_up(f"the server ended, waiting for {what}", self.server.log)
            if still > STILL_LOOKS or now - changed > PATIENCE / 1000 or now - begun > 4 * PATIENCE / 1000:
                self._give_up(f"{'it stands still' if still > STILL_LOOKS else 'too long'} without {what}", before)
            self.page.wait_for_timeout(100)

    def _give_up(self, why: str, shown: str) -> None:
        raise AssertionError(f"{why}; {self.page.url} shows:\n{shown[:4000]}\nerrors: {self.errors}")

    def _found(self, what: Any) -> Any:
        """Elements of the page: words stand for those that hold them."""
        return self.page.get_by_text(what) if isinstance(what, str | re.Pattern) else what

    def see(self, what: Any) -> Any:
        """Until the first of them stands on the page; gives it."""
        first = self._found(what).first
        self.until(first.is_visible, str(what))
        return first

    def gone(self, what: Any) -> None:
        """Until none of them is on the page."""
        found = self._found(what)
        self.until(lambda: found.count() == 0, f"the end of {what}")

    def click(self, what: Any) -> None:
        self.see(what).click()

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name)

    def idle(self) -> None:
        """Until the script has run, and all that it shows is drawn."""
        self.until(lambda: self.page.evaluate(_DRAWN), "the end of the script and all pictures")

    def wait_until(self, condition: str, argument: Any = None) -> None:
        """Until this function, in the page, says yes."""
        self.until(lambda: self.page.evaluate(condition, argument), condition)
        self.idle()

    def marks(self) -> Any:
        return self.page.locator("[data-testid=stVegaLiteChart] svg path[aria-roledescription=point]")

    def drawn(self) -> None:
        """Every chart that the page has room for shows its marks."""
        self.see(self.page.locator("[data-testid=stVegaLiteChart] svg path[aria-roledescription]"))
        self.idle()

    # ---- numbers ----

    def metric(self, label: str) -> str:
        box = self.page.locator("[data-testid=stMetric]").filter(has_text=label).first
        return str(self.see(box.locator("[data-testid=stMetricValue]")).inner_text())

    def wait_for_metric(self, label: str, value: str) -> None:
        """Until the number under this label is the value."""
        numbers = """([label]) => [...document.querySelectorAll('[data-testid=stMetric]')].filter(
            m => m.innerText.includes(label)).map(m => m.querySelector('[data-testid=stMetricValue]').innerText.trim())
        """
        self.until(lambda: value in self.page.evaluate(numbers, [label]), f"{label} = {value}")
        self.idle()

    def wait_for_address(self, *parts: str) -> None:
        """Until the page's address holds the parts, as they read without percent signs."""
        address = "() => decodeURIComponent(location.search.replaceAll('+', ' '))"
        for part in parts:
            self.until(lambda part=part: part in self.page.evaluate(address), f"{part} in the address")  # type: ignore[misc]
        self.idle()

    def choose(self, label: str, option: str, *, address: str) -> None:
        """In a select box, by the keyboard; then the address says so."""
        box = self.see(self.page.get_by_role("combobox", name=re.compile(label)))
        box.click()
        box.fill(option)
        self.click(self.page.get_by_role("option", name=option, exact=True))
        self.wait_for_address(address)

    def move(self, label: str, key: str, *, address: str, times: int = 1) -> None:
        """A slider, by the keyboard; then the address says where it is."""
        slider = self.see(self.page.get_by_role("slider", name=re.compile(label)))
        slider.focus()
        for _ in range(times):
            slider.press(key)
        self.wait_for_address(address)

    def chart(self, alt: str) -> Any:
        """The chart whose words for those who do not see it begin like this."""
        return self.page.locator(f'[data-testid=stVegaLiteChart][aria-label^="{alt}"]')

    def cells(self, header: str, *, holding: str | None = None) -> list[str]:
        """What the data frame with this column holds, row by row, as far as it is in view; once it holds that.

        It is drawn on a canvas; a hidden table beside it comes a moment later, and only where it has been scrolled to.
        """
        frames = self.page.locator("[data-testid=stDataFrame]")
        looked, found = 0, list[str]()

        def look() -> bool:
            nonlocal looked, found
            count = frames.count()
            if count == 0:
                return False
            which = looked // 5 % count  # some looks at each: its hidden table needs a moment
            looked += 1
            headers, found = self.page.evaluate(
                """which => {
                    const frame = document.querySelectorAll('[data-testid=stDataFrame]')[which];
                    if (!frame) return [[], []];
                    frame.scrollIntoView({block: 'center'});
                    const texts = role => [...frame.querySelectorAll(`[role=${role}]`)].map(c => c.textContent);
                    return [texts('columnheader'), texts('gridcell')];
                }""",
                which,
            )
            return header in headers and bool(found) and (holding is None or holding in found)

        self.until(look, f"a table with a column {header}" + (f" that holds {holding}" if holding else ""))
        return found

    def _lasting_errors(self) -> list[str]:
        """Without those of pictures that an answer took from the page while the browser still asked for them, and of
        those that came when they were asked for again."""
        missing = "() => [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"
        for _ in range(50):
            unseen = "".join(self.page.evaluate(missing))
            pictures = [re.search(r"/media/[\w.]+", error) for error in self.errors]
            lasting = [e for e, p in zip(self.errors, pictures, strict=True) if p is None or p[0] in unseen]
            if not lasting:
                break
            self.page.wait_for_timeout(100)
        return lasting

    def check(self) -> None:
        """Nothing raised, nothing left this machine."""
        assert self.page.locator("[data-testid=stException]").count() == 0
        assert self._lasting_errors() == []
        assert self.foreign == []
        assert "Traceback" not in self.server.log


def new_tab(browser: Any, server: Server, *, width: int = 1400, height: int = 1000, dark: bool = False) -> Tab:
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", reduced_motion="reduce",
        accept_downloads=True,
    )  # fmt: skip
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.set_default_navigation_timeout(PATIENCE)
    tab = Tab(page, server)
    # A deep link makes Streamlit look for its health address below the page's own, twice, before it finds the server.
    usual = re.compile(r"/\w+/_stcore/(health|host-config)")

    def console(message: Any) -> None:
        place = message.location.get("url", "") if message.location else ""
        if message.type == "error" and not usual.search(place):
            tab.errors.append(f"{message.text} ({place})")

    def request(asked: Any) -> None:
        if not asked.url.startswith((server.url, "data:", "blob:")):
            tab.foreign.append(asked.url)

    page.on("console", console)
    page.on("pageerror", lambda error: tab.errors.append(str(error)))
    page.on("request", request)
    return tab


def screenshot(tab: Tab, page: str, width: int, dark: bool, fallback: Path) -> Path:
    """Saved below CALIBRANT_SCREENSHOTS, to be looked at, or in the test's own folder."""
    folder = Path(os.environ.get("CALIBRANT_SCREENSHOTS", fallback))
    folder.mkdir(parents=True, exist_ok=True)
    name = page.split("?")[0].strip("/") or "overview"
    height = tab.page.evaluate("() => document.querySelector('[data-testid=stMain]').scrollHeight")
    tab.page.set_viewport_size({"width": width, "height": min(int(height) + 40, 6000)})
    tab.idle()
    path = folder / f"{name}-{width}-{'dark' if dark else 'light'}.png"
    tab.page.screenshot(path=str(path))
    return path


def cut_texts(tab: Tab) -> list[str]:
    """Texts of charts outside of their chart or over each other, and anything wider than the page."""
    found: list[str] = tab.page.evaluate(
        """() => {
            const wrong = [];
            if (document.documentElement.scrollWidth > document.documentElement.clientWidth) wrong.push('page scrolls');
            for (const chart of document.querySelectorAll('[data-testid=stVegaLiteChart]')) {
                const box = chart.getBoundingClientRect();
                const out = b => b.left < box.left - 3 || b.right > box.right + 3;
                const texts = [...chart.querySelectorAll('svg text')].filter(
                    t => t.textContent && t.getBBox().width > 0 && getComputedStyle(t).opacity > 0);
                const boxes = texts.map(t => [t.textContent, t.getBoundingClientRect()]);
                for (const [text, b] of boxes)
                    if (out(b) || b.top < box.top - 3 || b.bottom > box.bottom + 3) wrong.push('outside: ' + text);
                for (const mark of chart.querySelectorAll('svg path[aria-roledescription]')) {
                    if (out(mark.getBoundingClientRect())) wrong.push('mark outside of ' + chart.ariaLabel);
                }
                for (let i = 0; i < boxes.length; i++)
                    for (let j = 0; j < i; j++) {
                        const [a, b] = [boxes[i][1], boxes[j][1]];
                        const across = a.left < b.right - 1 && b.left < a.right - 1;
                        if (across && a.top < b.bottom - 1 && b.top < a.bottom - 1)
                            wrong.push('over each other: ' + boxes[i][0] + ' | ' + boxes[j][0]);
                    }
            }
            return wrong;
        }"""
    )
    return found


def evaluated(run: Path, *, calibrated: bool, bins: int = 15, more: Sequence[str] = ()) -> dict[str, Any]:
    """What `calibrant evaluate --json` says."""
    arguments = [str(run / "predictions/test.parquet"), "--json", "--bins", str(bins), *more]
    arguments += ["--calibrator", str(run / "calibrator.json")] if calibrated else []
    result = CliRunner().invoke(evaluate, arguments, catch_exceptions=False)
    metrics: dict[str, Any] = json.loads(result.stdout)["models"][-1]["metrics"]
    return metrics


def percent(value: float) -> str:
    return f"{100 * value:.2f} %"
