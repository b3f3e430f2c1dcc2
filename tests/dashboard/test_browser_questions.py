"""The questions that a reader comes with, each answered on the first screen of a laptop, without scrolling."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from calibrant.dashboard.numbers import traffic

from .browser import Server, Tab, new_tab, start_server
from .conftest import write_model, write_run, write_turning_feedback

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
WIDTH, HEIGHT = 1400, 1000


def photograph(seed: int) -> Image.Image:
    rng = np.random.default_rng(seed)
    patches = Image.fromarray(rng.integers(40, 216, (6, 8, 3)).astype(np.uint8))
    soft = np.asarray(patches.resize((80, 60), Image.Resampling.BICUBIC)) + rng.normal(0, 4, (60, 80, 1))
    return Image.fromarray(np.clip(soft, 0, 255).astype(np.uint8))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is far too sure, one with a calibrator, its deployed file, and traffic that turned."""
    root = tmp_path_factory.mktemp("asked")
    write_run(root / "sure", rows=1500, seed=1, calibrator=False, loss="ce")
    ids = [f"{k % 10}/{k:03d}.png" for k in range(60)]
    for k, name in enumerate(ids):
        path = root / "leaves" / "images" / "test" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        photograph(k).save(path)
    write_run(root / "leaves", rows=1500, seed=2, ids=[ids[i % 60] for i in range(1500)])
    write_model(root / "leaves" / "model.onnx", source={"checkpoint_sha256": "weights of leaves"})
    write_turning_feedback(root / "feedback")
    return root


@pytest.fixture(scope="module")
def asked(folder: Path, chromium: Any) -> Iterator[Server]:
    started = start_server(folder)
    yield started
    assert started.stop() == 0
    assert "Traceback" not in started.log


@pytest.fixture
def tab(chromium: Any, asked: Server) -> Iterator[Tab]:
    opened = new_tab(chromium, asked, width=WIDTH, height=HEIGHT)
    yield opened
    opened.check()
    opened.page.context.close()


def in_sight(tab: Tab, found: Any) -> str:
    """Its text, once it stands whole on the first screen."""
    tab.see(found)
    tab.idle()
    box = found.first.bounding_box()
    assert box is not None
    assert tab.page.evaluate("() => document.querySelector('[data-testid=stMain]').scrollTop") == 0
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= HEIGHT, found.first.text_content()
    return str(found.first.text_content())


def test_can_i_trust_it(tab: Tab) -> None:
    tab.open("", wait_for="Not to be trusted")
    card = tab.page.locator("[class*=st-key-card-]").filter(has_text="sure")
    assert "Not to be trusted" in in_sight(tab, card)
    tab.open("reliability?run=sure", wait_for="Not to be trusted")
    in_sight(tab, tab.page.locator(".st-key-verdict").get_by_text("Not to be trusted:"))


def test_a_phone_shows_verdict_and_chart_on_its_first_two_screens(chromium: Any, asked: Server) -> None:
    height = 844
    phone = new_tab(chromium, asked, width=390, height=height)
    phone.open("reliability?run=sure", wait_for="Not to be trusted")
    phone.drawn()
    for found in (
        phone.page.locator(".st-key-verdict").get_by_text("Not to be trusted:"),
        phone.page.locator("[data-testid=stVegaLiteChart]"),
    ):
        box = found.first.bounding_box()
        assert box is not None
        assert box["height"] > 20
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 2 * height
    phone.check()
    phone.page.context.close()


def test_why_not(tab: Tab) -> None:
    tab.open("reliability?run=sure", wait_for="Why.")
    text = in_sight(tab, tab.page.locator(".st-key-verdict [data-testid=stMarkdown]").filter(has_text="Why."))
    assert "more than it is right" in text
    assert "over-confident" in text.lower().replace("over confident", "over-confident")


def test_what_shall_i_do(tab: Tab) -> None:
    tab.open("reliability?run=sure", wait_for="What to do.")
    in_sight(tab, tab.page.locator(".st-key-verdict [data-testid=stMarkdown]").filter(has_text="What to do."))
    in_sight(tab, tab.page.get_by_role("button", name="Do it"))


def test_did_it_help(tab: Tab) -> None:
    tab.open("reliability?run=leaves&predictions=test", wait_for="Did it help?")
    text = in_sight(tab, tab.page.locator(".st-key-verdict [data-testid=stMarkdown]").filter(has_text="Did it help?"))
    assert "Yes: NLL" in text


def test_what_changed_in_production_and_since_when(tab: Tab, folder: Path) -> None:
    tab.open("production", wait_for="What changed since when?")
    said = tab.page.locator(".st-key-first-words [data-testid=stMarkdown]").filter(has_text="What changed since when?")
    text = in_sight(tab, said)
    log = folder / "feedback"
    sha = traffic.read(log, traffic.log_stamps(log)).served[0].model.sha256
    found = traffic.summary(log, traffic.log_stamps(log), sha, None)
    assert found is not None
    assert f"row {found.onsets['calibration'].began:,}" in text
    assert "01 Jan 0" in text
    in_sight(tab, tab.chart("Claimed and realised accuracy").locator("svg"))


def test_from_which_confidence_on_it_may_answer_alone(tab: Tab) -> None:
    tab.open("decide?run=leaves&predictions=test&wish=20", wait_for="Answered alone")
    in_sight(tab, tab.page.get_by_text("At most 20 % wrong"))
    in_sight(tab, tab.chart("Error rate of the answers").locator("svg"))
    before = tab.metric("Answered alone")
    tab.move("Answer alone from a confidence", "ArrowLeft", times=5, address="threshold=")
    tab.wait_until(
        "before => [...document.querySelectorAll('[data-testid=stMetric]')].some(m => m.innerText.includes("
        "'Answered alone') && m.querySelector('[data-testid=stMetricValue]').innerText.trim() !== before)",
        before,
    )
    tab.see("rows are answered alone now")


def test_a_blank_a_black_and_a_noisy_picture_end_in_a_warning(tab: Tab) -> None:
    rng = np.random.default_rng(0)
    drawn = {
        "white": Image.new("RGB", (64, 64), "white"),
        "black": Image.new("RGB", (64, 64)),
        "noise": Image.fromarray(rng.integers(0, 256, (64, 64, 3)).astype(np.uint8)),
    }
    files = []
    for name, image in drawn.items():
        stream = io.BytesIO()
        image.save(stream, "PNG")
        files.append({"name": f"{name}.png", "mimeType": "image/png", "buffer": stream.getvalue()})
    tab.open("try?model=leaves/model.onnx", wait_for="Pictures whose answer changes")
    warned = tab.page.get_by_text(
        re.compile("Do not rely on this answer.*(one flat colour|looks more unusual than all)")
    )
    assert warned.count() == 0  # the samples look like those that it was judged by
    tab.page.locator("input[type=file]").set_input_files(files)
    tab.see(warned.nth(2))
    tab.idle()
    assert warned.count() == 3
