"""The Laboratory: each switch changes the command, a head trains in the background, is compared, kept, cancelled."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from calibrant.artifacts.predictions import read_predictions
from calibrant.dashboard import jobs
from calibrant.dashboard.widgets.switches import ALL, MAIN, SECTIONS, Switch, settings

from .browser import Server, Tab, new_tab, screenshot, start_server
from .conftest import write_features

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TEXTS = {"head.hidden": "64, 32", "loss.options": "gamma=2", "auxiliary.options": "rate=0.25",
         "data.train_views": "eval, flip", "data.test_views": "flip", "data.background": "a",
         "posthoc.target_prior": "train"}  # fmt: skip


def extracted_features(root: Path) -> None:
    """Of a small network on a few coloured pictures, with the network beside them: a kept run holds both."""
    from calibrant.train.heads.features.extract import FeatureConfig, extract

    rng = np.random.default_rng(0)
    for split, count in (("train", 12), ("test", 10)):
        for k, name in enumerate("abcdef"):
            folder = root / "images" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                shade = 40 * k + 50 * rng.random((32, 32, 3))
                Image.fromarray(shade.clip(0, 255).astype(np.uint8)).save(folder / f"{i}.png")
    extract(FeatureConfig("test_vit", root / "images", root / "features", pretrained=False, image_size=32))


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path, chromium: Any) -> Iterator[tuple[Tab, Server, Path]]:
    if getattr(request, "param", "toy") == "real":
        extracted_features(tmp_path)
    else:
        write_features(tmp_path / "features")
    server = start_server(tmp_path)
    tab = new_tab(chromium, server, width=1900)  # a data frame holds only the columns in view
    try:
        tab.open("laboratory", wait_for="Train one head with all switches off")
        yield tab, server, tmp_path
        tab.check()
    finally:
        for state in jobs.states(tmp_path):
            jobs.cancel(tmp_path, state.job.id)
        assert server.stop() == 0


def box(tab: Tab, switch: Switch) -> Any:
    """The control, by its key."""
    return tab.page.locator(".st-key-" + re.sub(r"[^A-Za-z0-9_-]", "-", f"switch-{switch.key}"))


def pick(tab: Tab, place: Any, value: str) -> None:
    """In a select box; typing first, since a long list holds only the options in view."""
    line = tab.see(place.get_by_role("combobox"))
    line.click()
    line.fill(value)
    tab.click(tab.page.get_by_role("option", name=value, exact=True))


def move(tab: Tab, switch: Switch) -> Any:
    """Sets it to another value and gives that."""
    place = box(tab, switch)
    if switch.options:
        value: Any = next(o for o in switch.options[::-1] if o != switch.default)
        pick(tab, place, value)
        return value
    if switch.limits is None:
        line = place.get_by_role("textbox")
        line.fill(TEXTS[switch.key])
        line.press("Enter")
        return TEXTS[switch.key]
    low, high, step = switch.limits
    up = float(switch.default) + step <= high + 1e-9
    slider = place.get_by_role("slider")
    slider.focus()
    slider.press("ArrowRight" if up else "ArrowLeft")
    return type(switch.default)(float(switch.default) + (step if up else -step))


def command(tab: Tab) -> str:
    return str(tab.see(tab.page.locator("pre code")).inner_text())


def command_holds(tab: Tab, wanted: str) -> None:
    """Until one of the command's settings is this, numbers to nine digits."""
    key, _, value = wanted.partition("=")
    asked = json.loads(value)

    def holds() -> bool:
        words = shlex.split(command(tab))
        found = [json.loads(w.partition("=")[2]) for w in words if w.startswith(f"{key}=")]
        return found == [pytest.approx(asked, rel=1e-9) if isinstance(asked, float) else asked]

    tab.until(holds, f"{wanted} in the command")


def ended(tab: Tab, root: Path, *, jobs_in_all: int) -> None:
    """Until so many jobs were started and all have ended, well."""

    def look() -> bool:
        states = jobs.states(root)
        assert all(state.running or state.succeeded for state in states), states
        return len(states) == jobs_in_all and not any(state.running for state in states)

    tab.until(look, f"the end of {jobs_in_all} jobs")


def test_every_switch_changes_the_command_that_will_run(lab: tuple[Tab, Server, Path]) -> None:
    tab, _, _ = lab
    for section in SECTIONS:
        tab.click(tab.page.get_by_text(f"More: {section.lower()}", exact=True))
    walked = set()
    for kind in ALL["head.kind"].options:
        mine = [
            s for s in ALL.values()
            if s.key != "head.kind" and s.key not in walked and s.applies_to(kind) and (s.read_by or kind == "linear")
        ]  # fmt: skip
        if not mine:
            continue
        if kind != "linear":
            pick(tab, box(tab, ALL["head.kind"]), kind)
            command_holds(tab, f'head.kind="{kind}"')
        for switch in mine:
            value = move(tab, switch)
            for wanted in settings({"head.kind": kind, switch.key: value}):
                if not wanted.startswith("head.kind="):
                    command_holds(tab, wanted)
            walked.add(switch.key)
    assert walked | {"head.kind"} == set(ALL)
    assert set(MAIN) <= set(ALL)
    # The address carries them all: another tab shows the same command.
    tab.idle()
    shown = command(tab)
    again = new_tab(tab.page.context.browser, tab.server)
    again.open(tab.page.url.split("/", 3)[3], wait_for="All switches off")
    assert command(again) == shown
    again.check()
    again.page.context.close()
    tab.click(tab.button("All switches off"))
    tab.until(lambda: "--set" not in command(tab), "the command without settings")


@pytest.mark.parametrize("lab", ["real"], indirect=True)
def test_a_head_is_compared_with_the_baseline_and_kept(lab: tuple[Tab, Server, Path]) -> None:
    tab, _, root = lab
    tab.click(tab.button("Train this head"))
    ended(tab, root, jobs_in_all=1)
    tab.see("The row of the baseline")
    tab.gone("Training for")
    tab.open("laboratory?switches=%7B%22head.kind%22%3A%22cosine%22%2C%22posthoc.adjust%22%3A1%7D&keep=on",
             wait_for="The row of the baseline")  # fmt: skip
    command_holds(tab, 'head.kind="cosine"')
    tab.until(lambda: "--out lab/head-001" in command(tab), "the name of the run in the command")
    tab.click(tab.button("Train this head"))
    ended(tab, root, jobs_in_all=2)
    cells = tab.cells("Kept as", holding="lab/head-001")
    tab.until(lambda: "--out lab/head-002" in command(tab), "the next free name in the command")
    first, second = (s.job.result()["test"] for s in reversed(jobs.states(root)))
    for key, times, digits in (("macro_f1", 100, 2), ("accuracy", 100, 2), ("ece", 100, 2), ("nll", 1, 4)):
        assert f"{times * first[key]:.{digits}f}" in cells
        assert f"{times * (second[key] - first[key]):+.{digits}f}" in cells
    data = read_predictions(root / "lab/head-001/predictions/test.parquet")
    assert float((data.logits.argmax(axis=1) == data.labels).mean()) == pytest.approx(second["accuracy"], abs=0.02)
    tab.open("?as=table", wait_for="1 run,")
    tab.cells("Predictions", holding="lab/head-001")


def test_a_job_shows_its_progress_survives_a_reload_and_its_cancel_leaves_no_process(
    lab: tuple[Tab, Server, Path], tmp_path: Path
) -> None:
    tab, server, root = lab
    tab.open("laboratory?switches=" + "%7B%22head.kind%22%3A%22mlp%22%2C%22optimizer.epochs%22%3A300%2C"
             "%22optimizer.batch_size%22%3A16%2C%22ensemble.heads%22%3A1%2C%22head.hidden%22%3A%222048%2C2048%22%7D",
             wait_for="Train one head")  # fmt: skip
    tab.click(tab.button("Train this head"))
    tab.see(re.compile(r"training: \d+ of 300 epochs"))
    tab.open("laboratory", wait_for="Training for")  # a reload: it goes on
    other = new_tab(tab.page.context.browser, server)
    other.open("laboratory", wait_for="Training for")  # and another reader sees it
    other.page.context.close()
    screenshot(tab, "laboratory-training", 1400, False, tmp_path)
    (state,) = jobs.states(root)
    assert state.running
    tab.click(tab.button("Cancel"))
    tab.gone("Training for")
    assert jobs._born(state.job.pid) is None
    assert jobs.states(root) == []


def test_a_command_that_fails_says_why_and_can_be_dismissed(lab: tuple[Tab, Server, Path]) -> None:
    tab, _, root = lab
    tab.open("laboratory?switches=%7B%22posthoc.recall%22%3A0.5%2C%22posthoc.precision%22%3A0.5%7D", wait_for="Kind")
    tab.click(tab.button("Train this head"))
    tab.see("both move the class shifts")
    tab.click(tab.button("Dismiss"))
    tab.gone("both move the class shifts")
    assert jobs.states(root) == []
