"""The pages in a real headless Chromium, in front of the real command. The long walk is marked slow."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from PIL import Image

from calibrant.calibration.cli import evaluate
from calibrant.dashboard import jobs
from calibrant.serve import load

from .conftest import (
    CLASSES,
    HOSTILE,
    Server,
    Tab,
    export_small_network,
    new_tab,
    start_server,
    write_features,
    write_feedback,
    write_model,
    write_run,
)  # fmt: skip

pytestmark = pytest.mark.timeout(240)
HOSTILE_FILE = HOSTILE.replace("/", "_")
PAGES = ["", "reliability?lower=classes", "training", "try?t=3.5&prior=train", "production"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, one with pictures and one whose every name is hostile, and files that cannot be used."""
    root = tmp_path_factory.mktemp("dash") / "runs"
    images = root / "leaves" / "images" / "test"
    ids = []
    for k in range(40):
        path = images / f"{k % CLASSES}" / f"{k:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), (6 * k % 255, 120, 255 - 6 * k)).save(path)
        ids.append(path.relative_to(images).as_posix())
    write_run(root / "leaves", rows=2000, seed=1, ids=[ids[i % 40] for i in range(2000)])
    model = write_model(root / "leaves" / "model.onnx")
    write_feedback(root / "leaves" / "feedback", model, rows=1200, every=2, sharpness=3.0)
    write_run(root / "fedlas", rows=1500, seed=2, sharpness=1.4, loss="fedlas-ls")
    names = tuple(f"{HOSTILE} {k}" for k in range(CLASSES))
    hostile = write_run(root / HOSTILE_FILE, rows=500, seed=3, names=names, ids=[ids[i % 40] for i in range(500)])
    shutil.copytree(root / "leaves" / "images", hostile / "images")
    pq.write_table(pa.table({"x": [1]}), root / "foreign.parquet")
    pq.write_table(pa.table({"x": [1]}), root / f"{HOSTILE_FILE}.parquet")
    return root


@pytest.fixture(scope="module")
def server(runs: Path, chromium: Any) -> Iterator[Server]:
    started = start_server(runs)
    yield started
    assert started.stop() == 0
    assert "Traceback" not in started.log


@pytest.fixture
def tab(chromium: Any, server: Server) -> Iterator[Tab]:
    opened = new_tab(chromium, server)
    yield opened
    opened.page.context.close()


def evaluated(run: Path, *, calibrated: bool, bins: int) -> dict[str, Any]:
    """What `calibrant evaluate --json` says."""
    arguments = [str(run / "predictions/test.parquet"), "--json", "--bins", str(bins)]
    arguments += ["--calibrator", str(run / "calibrator.json")] if calibrated else []
    result = CliRunner().invoke(evaluate, arguments, catch_exceptions=False)
    metrics: dict[str, Any] = json.loads(result.stdout)["models"][-1]["metrics"]
    return metrics


def percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def test_the_numbers_are_those_of_calibrant_evaluate_and_follow_the_bins(tab: Tab, runs: Path) -> None:
    tab.open("reliability?run=leaves&predictions=test", wait_for="ECE after")
    raw, after = (evaluated(runs / "leaves", calibrated=c, bins=15) for c in (False, True))
    assert tab.metric("Accuracy") == percent(raw["accuracy"]["value"])
    assert tab.metric("ECE before") == percent(raw["ece"]["value"])
    shown = tab.metric("ECE after")
    assert shown == percent(after["ece"]["value"])
    assert tab.metric("NLL") == f"{raw['nll']['value']:.4f} → {after['nll']['value']:.4f}"
    slider = tab.page.get_by_role("slider")
    slider.focus()
    for _ in range(2):
        slider.press("ArrowRight")
    tab.page.wait_for_url(re.compile("bins=17"))
    tab.wait_until(
        "before => ![...document.querySelectorAll('[data-testid=stMetricValue]')].some(e => e.innerText === before)",
        shown,
    )
    assert tab.metric("ECE after") == percent(evaluated(runs / "leaves", calibrated=True, bins=17)["ece"]["value"])
    tab.check()


def test_a_click_on_a_bin_shows_its_pictures_and_the_link_brings_them_back(tab: Tab, server: Server) -> None:
    tab.open("reliability?run=leaves", wait_for="Click a mark")
    marks = tab.page.locator(".st-key-diagram-after svg path[aria-roledescription=point]")
    marks.nth(8).click(force=True)
    tab.page.wait_for_url(re.compile(r"bin=after-\d+"))
    tab.page.locator(".st-key-cards img").first.wait_for()
    tab.idle()
    shown = tab.page.locator(".st-key-cards img").count()
    text = tab.page.get_by_text("rows, confidence after calibration").inner_text()
    assert shown == min(24, int(re.match(r"[\d,]+", text)[0].replace(",", "")))  # type: ignore[index]
    again = new_tab(tab.page.context.browser, server)
    again.open(tab.page.url.split("/", 3)[3], wait_for="rows, confidence after calibration")
    assert again.page.get_by_text("rows, confidence after calibration").inner_text() == text
    assert again.page.locator(".st-key-cards img").count() == shown
    again.check()
    again.page.context.close()
    tab.check()


def test_hostile_names_are_shown_as_they_are_and_fetch_nothing(tab: Tab) -> None:
    tab.open("", wait_for="deployed file")
    alerts = tab.page.locator("[data-testid=stAlert]").all_inner_texts()
    # The word joiner has no width; it keeps an address in a name from becoming a link.
    assert any(HOSTILE_FILE in text.replace("\u2060", "") for text in alerts)
    assert tab.page.locator("[data-testid=stAlert] a").count() == 0
    harmless(tab)
    tab.open(f"reliability?run={quote(HOSTILE_FILE)}&rows=class-3&lower=over", wait_for="confidence after calibration")
    values = tab.page.locator("input").evaluate_all("inputs => inputs.map(i => i.value)")
    assert HOSTILE_FILE in values
    assert f"Predicted as {HOSTILE} 3" in values
    assert any(HOSTILE[:7] in text for text in tab.page.locator(".st-key-cards").all_inner_texts())
    harmless(tab)
    tab.open(f"training?runs={quote(HOSTILE_FILE)}", wait_for="VACE class temperatures")
    harmless(tab)


def harmless(tab: Tab) -> None:
    """No name became a picture, a formula or bold text of its own."""
    assert tab.page.locator("[data-testid=stMarkdown] img, [data-testid=stAlert] img").count() == 0
    assert tab.page.locator(".katex").count() == 0
    assert "c" not in tab.page.locator("[data-testid=stMain] strong").all_inner_texts()
    tab.check()


def test_a_link_to_what_is_not_there_says_so(tab: Tab) -> None:
    tab.open("reliability?run=gone![x](http://evil.example/y.png)&bins=9999", wait_for="which is not here")
    assert tab.page.get_by_text("which is not here").count() == 2
    assert tab.page.locator("[data-testid=stAlert] img").count() == 0
    tab.check()


def test_a_foreign_parquet_is_named_and_the_page_goes_on(tab: Tab) -> None:
    tab.open("", wait_for="foreign.parquet")
    tab.page.get_by_text("has no column").first.wait_for()
    assert tab.page.get_by_text("3 runs").count() == 1
    tab.check()


@pytest.mark.parametrize("page", [*PAGES[:2], *(pytest.param(page, marks=pytest.mark.slow) for page in PAGES[2:])])
def test_pages_fit_wide_and_light_narrow_and_dark(page: str, chromium: Any, server: Server, tmp_path: Path) -> None:
    for width, dark in ((1400, False), (390, True)):
        opened = new_tab(chromium, server, width=width, height=1000 if width > 500 else 844, dark=dark)
        opened.open(page)
        opened.drawn()
        picture = screenshot(opened, page, width, dark, tmp_path)
        assert picture.stat().st_size > 10_000
        assert cut_texts(opened) == []
        opened.check()
        opened.page.context.close()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("width", "dark"), [(1400, True), (390, False)])
def test_pages_fit_in_the_other_two_variants(
    page: str, width: int, dark: bool, chromium: Any, server: Server, tmp_path: Path
) -> None:
    opened = new_tab(chromium, server, width=width, height=1000 if width > 500 else 844, dark=dark)
    opened.open(page)
    opened.drawn()
    screenshot(opened, page, width, dark, tmp_path)
    assert cut_texts(opened) == []
    opened.check()
    opened.page.context.close()


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


@pytest.mark.slow
def test_a_predictions_file_that_goes_away_and_comes_back(tmp_path: Path, chromium: Any) -> None:
    write_run(tmp_path / "runs" / "a", rows=300)
    server = start_server(tmp_path / "runs")
    try:
        tab = new_tab(chromium, server)
        tab.open("reliability?run=a&predictions=test", wait_for="ECE after")
        before = tab.metric("ECE after")
        file = tmp_path / "runs/a/predictions/test.parquet"
        shutil.move(file, tmp_path / "kept")
        tab.page.get_by_text("As if all classes").click()
        tab.page.get_by_text("test is no longer here").wait_for()
        tab.idle()
        tab.check()
        shutil.move(tmp_path / "kept", file)
        tab.open("reliability?run=a&predictions=test", wait_for="ECE after")
        assert tab.metric("ECE after") == before
        tab.check()
    finally:
        assert server.stop() == 0


@pytest.mark.slow
def test_an_empty_folder_says_what_to_run(tmp_path: Path, chromium: Any) -> None:
    server = start_server(tmp_path)
    try:
        tab = new_tab(chromium, server)
        tab.open("", wait_for="There are no runs")
        assert tab.page.get_by_text("calibrant demo").count() >= 1
        assert tab.page.get_by_role("button", name="Make the demo here").count() == 1
        for page, text in (
            ("reliability", "No predictions here"),
            ("training", "No training log"),
            ("try", "No deployed file"),
            ("production", "No feedback log"),
            ("laboratory", "No cached features"),
        ):
            tab.open(page, wait_for=text)
        tab.check()
        write_run(tmp_path / "first", rows=100)
        tab.open("", wait_for="1 run,")
        tab.check()
    finally:
        assert server.stop() == 0


@pytest.mark.slow
def test_the_demo_of_the_working_directory_opens_with_one_click(tmp_path: Path, chromium: Any) -> None:
    write_run(tmp_path / "calibrant-demo", rows=200)
    (tmp_path / "calibrant-demo" / "demo.json").write_text("{}")
    (tmp_path / "runs").mkdir()
    server = start_server(tmp_path / "runs", cwd=tmp_path)
    try:
        tab = new_tab(chromium, server)
        tab.open("", wait_for="There are no runs")
        tab.page.get_by_role("button", name="Open the demo").click()
        tab.page.get_by_text("1 run,").wait_for()
        tab.page.get_by_role("link", name="Reliability").click()
        tab.page.get_by_text("ECE after").first.wait_for()
        tab.idle()
        tab.check()
    finally:
        assert server.stop() == 0


@pytest.mark.slow
def test_the_demo_is_made_with_one_click_and_can_be_cancelled(tmp_path: Path, chromium: Any) -> None:
    pytest.importorskip("torch")
    server = start_server(tmp_path)
    try:
        tab = new_tab(chromium, server)
        tab.open("", wait_for="Make the demo here")
        tab.page.get_by_role("button", name="Make the demo here").click()
        tab.page.get_by_text("/8").first.wait_for(timeout=90_000)  # its own progress
        (state,) = jobs.states(tmp_path)
        tab.page.get_by_role("button", name="Cancel").click()
        tab.page.get_by_text("Making the demo").wait_for(state="detached", timeout=30_000)
        assert jobs._born(state.job.pid) is None
        assert jobs.states(tmp_path) == []
        tab.idle()
        tab.check()
    finally:
        assert server.stop() == 0


def test_a_foreign_host_header_is_refused(server: Server) -> None:
    port = int(server.url.rsplit(":", 1)[1])

    def status(host: str) -> bytes:
        key = "dGhlIHNhbXBsZSBub25jZQ=="
        lines = ["GET /_stcore/stream HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade",
                 f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", f"Origin: http://{host}"]  # fmt: skip
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            return connection.recv(64).split()[1]

    assert status(f"127.0.0.1:{port}") == b"101"
    assert status("evil.example") == b"403"


def test_it_listens_on_this_machine_only(server: Server) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:] if Path("/proc/net/tcp").exists() else []
    listening = [r.split()[1] for r in rows if r.split()[3] == "0A" and int(r.split()[1].split(":")[1], 16) == port]
    if not rows:
        pytest.skip("no /proc/net/tcp")
    assert listening == [f"0100007F:{port:04X}"]


def test_the_sliders_of_try_it_act_through_the_engine(tab: Tab, runs: Path) -> None:
    tab.open("try?model=leaves/model.onnx", wait_for="Pictures whose answer changes")
    deployed = tab.metric("Mean confidence, as deployed")
    assert tab.metric("Mean confidence, your settings") == deployed
    shown = tab.page.locator("[data-testid=stMarkdown]").all_inner_texts()
    names = [n for text in shown for n in re.findall(r"\d/\d{3}\.png", text)]
    assert len(names) == 3
    pictures = [runs / "leaves/images/test" / n for n in names]
    engine = load(runs / "leaves/model.onnx")
    assert deployed == percent(float(engine.predict(pictures).confidence.mean()))
    tab.open("try?model=leaves/model.onnx&t=4.5&strength=0.5&prior=train", wait_for="Pictures whose answer changes")
    expected = engine.predict(pictures, temperature=4.5, adjust_strength=0.5, target_prior="train")
    assert tab.metric("Mean confidence, your settings") == percent(float(expected.confidence.mean()))
    assert tab.metric("Mean confidence, as deployed") == deployed
    slider = tab.page.get_by_role("slider", name="Temperature")
    slider.focus()
    slider.press("ArrowRight")
    tab.page.wait_for_url(re.compile("t=4.51"))
    tab.check()


def test_uploads_are_decoded_with_care_and_their_names_are_text(tab: Tab) -> None:
    tab.open("try?model=leaves/model.onnx", wait_for="Pictures whose answer changes")
    name = "<b>n</b>![x](http:__evil.example_p.png).png"
    stream = io.BytesIO()
    Image.new("RGB", (30, 30), "green").save(stream, "PNG")
    good = {"name": name, "mimeType": "image/png", "buffer": stream.getvalue()}
    broken = {"name": "broken.png", "mimeType": "image/png", "buffer": b"\x89PNG nothing"}
    tab.page.locator("input[type=file]").set_input_files([good, broken])
    tab.page.get_by_text("0 of 1").or_(tab.page.get_by_text("1 of 1")).first.wait_for()
    tab.page.get_by_text("is not a PNG, JPEG, WebP or BMP picture").wait_for()
    tab.idle()
    assert tab.page.locator("[data-testid=stMarkdown] b").count() == 0
    assert any("<b>n</b>" in text for text in tab.page.locator("[data-testid=stMarkdown]").all_inner_texts())
    tab.check()


@pytest.mark.slow
def test_production_follows_the_log_while_it_is_written(tmp_path: Path, chromium: Any) -> None:
    model = write_model(tmp_path / "model.onnx")
    write_feedback(tmp_path / "feedback", model, rows=400, every=2)
    server = start_server(tmp_path)
    try:
        tab = new_tab(chromium, server)
        tab.open("production", wait_for="Rows served")
        assert tab.metric("Rows served") == "400"
        assert tab.page.get_by_text("200 of them labelled").count() == 1
        segment = next((tmp_path / "feedback").iterdir())
        lines = segment.read_text().splitlines(keepends=True)
        block = json.loads(lines[2])
        block["ids"] = [f"later-{i}" for i in range(len(block["ids"]))]
        with open(segment, "a") as stream:
            stream.write(json.dumps(block) + "\n" + lines[3][:40])  # and a line that is only half there
        tab.page.get_by_text("420", exact=True).wait_for(timeout=15_000)
        tab.check()
    finally:
        assert server.stop() == 0


@pytest.mark.slow
def test_one_click_writes_a_recalibrated_file(tmp_path: Path, chromium: Any) -> None:
    model = export_small_network(tmp_path / "model.onnx")
    write_feedback(tmp_path / "feedback", model, rows=1000, every=1, sharpness=3.0)
    server = start_server(tmp_path)
    try:
        tab = new_tab(chromium, server)
        tab.open("production", wait_for="Recalibrate with these labels")
        tab.page.get_by_role("button", name="Write a new calibrator").click()
        tab.page.get_by_text("Written beside the old file").wait_for(timeout=60_000)
        tab.check()
        assert len(list(tmp_path.glob("model-*.onnx"))) == 1
        assert len(list(tmp_path.glob("model-*-calibrator.json"))) == 1
        tab.open("", wait_for="2 deployed files")
        tab.check()
    finally:
        assert server.stop() == 0


@pytest.mark.slow
def test_the_laboratory_trains_compares_cancels_and_survives_a_reload(tmp_path: Path, chromium: Any) -> None:
    write_features(tmp_path / "features")
    server = start_server(tmp_path)
    try:
        tab = new_tab(chromium, server)
        tab.open("laboratory", wait_for="Train one head with all switches off")
        tab.page.get_by_role("button", name="Train this head").click()
        tab.page.get_by_text("Training for").wait_for(timeout=30_000)
        tab.open("laboratory", wait_for="Laboratory")  # a reload: the job goes on
        tab.page.get_by_text("The row of the baseline").wait_for(timeout=90_000)
        tab.idle()
        assert tab.page.get_by_text("Training for").count() == 0
        # A long job, cancelled: no process of it is left.
        tab.page.get_by_role("combobox", name=re.compile("Kind")).click()
        tab.page.get_by_role("option", name="mlp").click()
        slider = tab.page.get_by_role("slider", name="Epochs").first
        tab.page.get_by_text("Training", exact=True).last.click()
        slider.focus()
        slider.press("End")
        tab.page.get_by_role("button", name="Train this head").click()
        tab.page.get_by_text("Training for").wait_for(timeout=30_000)
        pids = [s.job.pid for s in jobs.states(tmp_path) if s.running]
        tab.page.get_by_role("button", name="Cancel").click()
        tab.page.get_by_text("Training for").wait_for(state="detached", timeout=30_000)
        assert len(pids) == 1
        assert jobs._born(pids[0]) is None
        tab.idle()
        assert len(jobs.states(tmp_path)) == 1
        tab.check()
        screenshot(tab, "laboratory", 1400, False, tmp_path)
    finally:
        assert server.stop() == 0


@pytest.mark.slow
def test_every_chart_is_offered_as_png_svg_and_csv(tab: Tab) -> None:
    tab.open("reliability?run=leaves", wait_for="ECE after")
    tab.page.locator("[class*=st-key-download-] button").first.click()
    for label, start in (
        ("Chart as PNG", b"\x89PNG"),
        ("Chart as SVG", b"<svg"),
        ("Numbers as CSV", b"\xef\xbb\xbfbin,"),
    ):
        with tab.page.expect_download() as waiting:
            tab.page.get_by_role("button", name=label).click()
        path = waiting.value.path()
        assert Path(path).read_bytes().startswith(start), label
    tab.check()


@pytest.mark.slow
def test_a_config_in_the_working_directory_changes_nothing(tmp_path: Path, chromium: Any) -> None:
    (tmp_path / ".streamlit").mkdir()
    (tmp_path / ".streamlit" / "config.toml").write_text(
        '[server]\nbaseUrlPath = "/x"\n[theme]\nprimaryColor = "#ff0000"\nfont = "Evil:http://evil.example/font.css"\n'
    )
    server = start_server(tmp_path, cwd=tmp_path)
    try:
        tab = new_tab(chromium, server)
        tab.open("", wait_for="There are no runs")
        tab.check()
    finally:
        server.stop()


@pytest.mark.slow
def test_fifty_runs_make_a_readable_table_in_time(tmp_path: Path, chromium: Any) -> None:
    for k in range(50):
        write_run(tmp_path / f"run-{k:02d}", rows=200, seed=k)
    server = start_server(tmp_path)
    try:
        tab = new_tab(chromium, server)
        start = time.monotonic()
        tab.open("", wait_for="50 runs")
        assert time.monotonic() - start < 15
        tab.check()
    finally:
        server.stop()
