"""What the pages do, in a real headless Chromium in front of the real command. The walks have files of their own."""

from __future__ import annotations

import http.client
import io
import json
import re
import shutil
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from PIL import Image

from calibrant.dashboard import jobs
from calibrant.serve import load

from .browser import Server, Tab, evaluated, new_tab, percent, start_server
from .conftest import HOSTILE, HOSTILE_FILE, export_small_network, write_feedback, write_model, write_run

pytestmark = pytest.mark.timeout(900)


def test_the_numbers_are_those_of_calibrant_evaluate_and_follow_the_bins(tab: Tab, runs: Path) -> None:
    tab.open("reliability?run=leaves&predictions=test", wait_for="ECE after")
    raw, after = (evaluated(runs / "leaves", calibrated=c, bins=15) for c in (False, True))
    assert tab.metric("Accuracy") == percent(raw["accuracy"]["value"])
    assert tab.metric("ECE before") == percent(raw["ece"]["value"])
    shown = tab.metric("ECE after")
    assert shown == percent(after["ece"]["value"])
    assert tab.metric("NLL") == f"{raw['nll']['value']:.4f} → {after['nll']['value']:.4f}"
    tab.move("Bins", "ArrowRight", times=2, address="bins=17")
    expected = percent(evaluated(runs / "leaves", calibrated=True, bins=17)["ece"]["value"])
    assert expected != shown
    tab.wait_for_metric("ECE after", expected)
    tab.check()


def test_a_click_on_a_bin_shows_its_pictures_and_the_link_brings_them_back(tab: Tab, server: Server) -> None:
    tab.open("reliability?run=leaves", wait_for="Click a mark")
    marks = tab.page.locator(".st-key-diagram-after svg path[aria-roledescription=point]")
    tab.see(marks.nth(8)).click(force=True)
    tab.wait_for_address("bin=after-")
    tab.see(tab.page.locator(".st-key-cards img"))
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
    tab.see("has no column")
    assert tab.page.get_by_text("3 runs").count() == 1
    tab.check()


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
        tab.page.get_by_role("slider").focus()
        tab.page.get_by_role("slider").press("ArrowRight")
        tab.see("test is no longer here")
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
        tab.click(tab.button("Open the demo"))
        tab.see("1 run,")
        tab.click(tab.page.get_by_role("link", name="Reliability"))
        tab.see("ECE after")
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
        tab.click(tab.button("Make the demo here"))
        # It says what it is at, whatever that is by now: a step passes between two looks of a busy machine.
        tab.see(re.compile(r"Making the demo for \d+ s\. .*\w"))
        (state,) = jobs.states(tmp_path)
        tab.click(tab.button("Cancel"))
        tab.gone("Making the demo")
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
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            with connection.makefile("rb") as answer:
                return answer.readline().split()[1]

    assert status(f"127.0.0.1:{port}") == b"101"
    assert status("evil.example") == b"403"


def test_plain_http_refuses_a_foreign_host_and_its_answers_say_what_a_page_may_do(server: Server) -> None:
    port = int(server.url.rsplit(":", 1)[1])

    def answer(path: str, host: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", path, headers={"Host": host})
        found = connection.getresponse()
        found.read()
        connection.close()
        return found

    for path in ("/", "/reliability", "/_stcore/health", "/_stcore/host-config", "/favicon.png"):
        assert answer(path, "evil.example").status == 403
        good = answer(path, f"localhost:{port}")
        assert good.status == 200
        assert good.getheader("X-Content-Type-Options") == "nosniff"
        assert "frame-ancestors 'none'" in good.getheader("Content-Security-Policy")


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
    tab.move("Temperature", "ArrowRight", address="t=4.51")
    tab.check()


def test_uploads_are_decoded_with_care_and_their_names_are_text(tab: Tab) -> None:
    tab.open("try?model=leaves/model.onnx", wait_for="Pictures whose answer changes")
    name = "<b>n</b>![x](http:__evil.example_p.png).png"
    stream = io.BytesIO()
    Image.new("RGB", (30, 30), "green").save(stream, "PNG")
    good = {"name": name, "mimeType": "image/png", "buffer": stream.getvalue()}
    broken = {"name": "broken.png", "mimeType": "image/png", "buffer": b"\x89PNG nothing"}
    tab.page.locator("input[type=file]").set_input_files([good, broken])
    tab.see(re.compile("[01] of 1"))
    tab.see("not a JPEG, PNG, WebP, BMP or TIFF image")
    tab.idle()
    assert tab.page.locator("[data-testid=stMarkdown] b").count() == 0
    assert any("<b>n</b>" in text for text in tab.page.locator("[data-testid=stMarkdown]").all_inner_texts())
    tab.check()


@pytest.mark.slow
def test_training_follows_a_run_that_is_going_on(tmp_path: Path, chromium: Any) -> None:
    run = write_run(tmp_path / "a", rows=100)
    server = start_server(tmp_path)
    try:
        tab = new_tab(chromium, server)
        tab.open("training", wait_for="Accuracy and calibration by epoch")
        tab.drawn()
        points = tab.chart("Training loss").locator("[aria-roledescription=point]")
        tab.see(points.nth(5))
        tab.idle()
        before = points.count()  # an epoch each, and the mark of the best
        line = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        with open(run / "metrics.jsonl", "a") as stream:
            stream.write(json.dumps(line | {"epoch": 7}) + "\n" + '{"epoch": 8, "tra')
        tab.see(points.nth(before))
        tab.idle()
        assert points.count() == before + 1  # the eighth is only half there
        tab.check()
    finally:
        assert server.stop() == 0


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
        tab.see(tab.page.get_by_text("420", exact=True))
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
        tab.open("production", wait_for="Would recalibrating help")
        tab.click(tab.button("Write a new calibrator"))
        tab.see("Written beside the old file")
        tab.check()
        assert len(list(tmp_path.glob("model-*.onnx"))) == 1
        assert len(list(tmp_path.glob("model-*-calibrator.json"))) == 1
        tab.open("", wait_for="2 deployed files")
        tab.check()
    finally:
        assert server.stop() == 0


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
def test_fifty_runs_are_shown_at_once_and_judged_one_after_another(tmp_path: Path, chromium: Any) -> None:
    for k in range(50):
        write_run(tmp_path / f"run-{k:02d}", rows=200, seed=k)
    server = start_server(tmp_path)
    try:
        tab = new_tab(chromium, server)
        tab.page.goto(server.url)
        tab.see("50 runs")
        tab.see(tab.page.locator("[class*=st-key-card-]").nth(23))  # of the first of three pages
        tab.see(re.compile(r"Judged [1-9]\d* of 50"))
        tab.check()
    finally:
        assert server.stop() == 0  # in the middle of its work
    assert "terminate" not in server.log
