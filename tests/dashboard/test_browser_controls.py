"""Each control of each page changes the numbers that are shown, to what the commands say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.feedback import read_feedback
from calibrant.artifacts.predictions import read_predictions
from calibrant.serve import load

from .browser import Tab, evaluated, percent
from .conftest import CLASSES

pytestmark = pytest.mark.timeout(900)


def prior_file(path: Path, shares: list[float]) -> list[str]:
    path.write_text(json.dumps([s / sum(shares) for s in shares]))
    return ["--target-prior", str(path)]


def test_each_kind_of_diagram_shows_the_number_of_the_command(tab: Tab, runs: Path) -> None:
    tab.open("reliability?run=leaves&predictions=test&bins=12", wait_for="ECE after")
    says = evaluated(runs / "leaves", calibrated=True, bins=12)
    for button, address, label, metric in (
        ("equal rows", "of=mass", "Adaptive ECE after", "adaptive_ece"),
        ("smooth", "of=smooth", "Smooth ECE after", "smooth_ece"),
        ("equal width", "of=width", "ECE after", "ece"),
    ):
        tab.click(tab.page.get_by_role("radio", name=button).or_(tab.button(button)))
        tab.wait_for_address(address)
        tab.wait_for_metric(label, percent(says[metric]["value"]))
        tab.drawn()
    tab.check()


@pytest.mark.slow
def test_each_class_prior_gives_the_number_of_the_command(tab: Tab, runs: Path, tmp_path: Path) -> None:
    tab.open("reliability?run=leaves&predictions=test", wait_for="ECE after")
    val = np.bincount(read_predictions(runs / "leaves/predictions/val.parquet").labels, minlength=CLASSES)
    (served,) = read_feedback(runs / "leaves" / "feedback").served
    arrived = np.bincount(served.labels[served.labels >= 0], minlength=CLASSES)
    train = list(np.linspace(2, 1, CLASSES))
    typed = [5.0 if k == 3 else 1.0 for k in range(CLASSES)]
    for option, address, more in (
        ("all classes equally common", "target=uniform", ["--target-prior", "uniform"]),
        ("as common as in training", "target=training", prior_file(tmp_path / "a.json", train)),
        ("as the labels of leaves/val", "target=rows:leaves/val", prior_file(tmp_path / "b.json", val.tolist())),
        (
            "as the labels served, leaves/feedback",
            "target=served:leaves/feedback",
            prior_file(tmp_path / "c.json", arrived.tolist()),
        ),
        ("shares that I type", "target=typed", prior_file(tmp_path / "d.json", [1.0] * CLASSES)),
    ):
        tab.choose("Class prior", option, address=address)
        says = evaluated(runs / "leaves", calibrated=True, more=more)
        tab.wait_for_metric("Accuracy", percent(says["accuracy"]["value"]))
        tab.wait_for_metric("ECE after", percent(says["ece"]["value"]))
    box = tab.page.get_by_role("textbox", name="Shares of the classes")
    box.fill("leaf-03=5,*=1")
    box.press("Enter")
    says = evaluated(runs / "leaves", calibrated=True, more=prior_file(tmp_path / "e.json", typed))
    tab.wait_for_metric("ECE after", percent(says["ece"]["value"]))
    box.fill("leaf-99=5,*=1")
    box.press("Enter")
    tab.see("no class")
    tab.check()


@pytest.mark.slow
def test_run_predictions_calibrator_rows_and_table_are_followed(tab: Tab, runs: Path) -> None:
    tab.open("reliability?run=leaves&predictions=test", wait_for="ECE after")
    tab.choose("Run", "fedlas", address="run=fedlas")
    tab.wait_for_metric("ECE before", percent(evaluated(runs / "fedlas", calibrated=False)["ece"]["value"]))
    tab.choose("Run", "leaves", address="run=leaves")
    tab.wait_for_metric("ECE before", percent(evaluated(runs / "leaves", calibrated=False)["ece"]["value"]))
    data = read_predictions(runs / "leaves/predictions/val.parquet")
    tab.choose("Predictions", "val", address="predictions=val")
    tab.wait_for_metric("Accuracy", percent(float((data.logits.argmax(axis=1) == data.labels).mean())))
    tab.choose("After calibration with", "nothing: show it as it is", address="calibrator=none")
    tab.see("Before: as the network says")
    assert tab.page.locator(".st-key-diagram-after").count() == 0
    predicted = data.logits.argmax(axis=1)
    head = predicted < 3  # the training prior falls with the class
    tab.choose("Rows", "Predicted as a head class (3)", address="rows=head")
    tab.wait_for_metric("Right when predicted", percent(float((predicted == data.labels)[head].mean())))
    tab.choose("Rows", "Predicted as leaf-07", address="rows=class-7")
    tab.wait_for_metric("Right when predicted", percent(float((predicted == data.labels)[predicted == 7].mean())))
    for button, address, text in (
        ("Most over-confident", "lower=over", "rows, confidence before calibration"),
        ("Most under-confident", "lower=under", "rows, confidence before calibration"),
        ("Classes", "lower=classes", "Before calibration. Click a column"),
    ):
        tab.click(tab.page.get_by_role("radio", name=button).or_(tab.button(button)))
        tab.wait_for_address(address)
        tab.see(text)
    cells = tab.cells("Recall (%)")
    assert "leaf-07" in cells
    assert str(int((data.labels == 7).sum())) in cells
    tab.check()


@pytest.mark.slow
def test_the_comparison_follows_the_chosen_runs(tab: Tab) -> None:
    tab.open("?compare=leaves|leaves/model.onnx", wait_for="files to compare")  # both judged by leaves/test
    assert {"leaves", "leaves/model.onnx"} <= set(tab.cells("Mean rank"))
    tab.see("Two whose 95 % intervals overlap")
    assert "NLL" in tab.cells("Second minus first")
    diagrams = tab.chart("Reliability diagram of leaves")
    tab.see(diagrams.nth(1))
    tab.open("?compare=fedlas|leaves", wait_for="not measured on the same rows")
    assert {"fedlas", "leaves"} <= set(tab.cells("Accuracy (%)", holding="fedlas"))
    assert tab.page.locator("[role=columnheader]").filter(has_text="Mean rank").count() == 0
    line = tab.see(tab.page.get_by_role("combobox", name=re.compile("files to compare")))
    line.focus()
    line.press("Backspace")
    tab.see("Choose a second one.")
    assert tab.page.get_by_text("not measured on the same rows").count() == 0
    tab.check()


@pytest.mark.slow
def test_the_curves_follow_the_chosen_runs_and_tokens_are_counted(tab: Tab) -> None:
    tab.open("training?runs=leaves", wait_for="VACE class temperatures")
    assert tab.page.get_by_text("FeDLaS gate").count() == 0
    assert tab.page.get_by_text("98 → 49 → 25 tokens").count() == 1
    points = tab.chart("Tokens left after each block").locator("[aria-roledescription=point]")
    tab.see(points.nth(3))
    labels = points.evaluate_all("all => all.map(e => e.ariaLabel)")
    assert any("96.5" in label for label in labels)  # mean of 98, 97, 96, 95
    tab.open("training?runs=fedlas", wait_for="FeDLaS gate")
    assert tab.page.get_by_text("tokens").count() == 0
    tab.check()


@pytest.mark.slow
def test_each_knob_of_try_it_gives_what_the_engine_says(tab: Tab, runs: Path) -> None:
    tab.open("try?model=leaves/model.onnx", wait_for="Pictures whose answer changes")
    engine = load(runs / "leaves/model.onnx")

    def sampled() -> list[Path]:
        shown = tab.page.locator("[data-testid=stMarkdown]").all_inner_texts()
        return [runs / "leaves/images/test" / n for text in shown for n in re.findall(r"\d/\d{3}\.png", text)]

    def expect(**knobs: object) -> None:
        found = engine.predict(sampled(), **knobs)  # type: ignore[arg-type]
        tab.wait_for_metric("Mean confidence, your settings", percent(float(found.confidence.mean())))

    tab.move("Temperature", "ArrowLeft", times=3, address="t=1.97")
    expect(temperature=1.97)
    tab.move("Adjustment strength", "ArrowLeft", times=2, address="strength=0.9")
    expect(temperature=1.97, adjust_strength=0.9)
    tab.choose("Target prior", "as common as in training", address="prior=train")
    expect(temperature=1.97, adjust_strength=0.9, target_prior="train")
    tab.choose("Target prior", "one class is common", address="prior=one")
    shares = [0.5 if k == 0 else 0.5 / 9 for k in range(CLASSES)]
    expect(temperature=1.97, adjust_strength=0.9, target_prior=tuple(shares))
    tab.choose("Common class", "leaf-04", address="common=leaf-04")
    tab.move("Its share", "ArrowRight", times=5, address="share=55")
    shares = [0.55 if k == 4 else 0.45 / 9 for k in range(CLASSES)]
    expect(temperature=1.97, adjust_strength=0.9, target_prior=tuple(shares))
    before = sampled()
    tab.move("Page of samples", "ArrowRight", address="sample=2")
    tab.wait_until(
        "name => ![...document.querySelectorAll('[data-testid=stMarkdown]')].some(e => e.innerText.includes(name))",
        before[0].relative_to(runs / "leaves/images/test").as_posix(),
    )
    expect(temperature=1.97, adjust_strength=0.9, target_prior=tuple(shares))
    tab.move("Abstain below", "End", address="abstain=100")
    tab.see("Your settings: I don't know")
    assert tab.page.get_by_text("Set: ").count() > 0
    tab.choose("Prediction set", "off", address="coverage=off")
    tab.gone("Set: ")
    tab.check()


@pytest.mark.slow
def test_production_shows_latency_and_follows_its_reference(tab: Tab, runs: Path) -> None:
    tab.open("production", wait_for="Of all answers, half took at most")
    tab.see(tab.chart("Median, 95th and 99th percentile of the latency").locator("svg path"))
    (served,) = read_feedback(runs / "leaves" / "feedback").served
    half, p95, p99 = np.quantile(served.latency_ms, (0.5, 0.95, 0.99))
    text = tab.page.get_by_text("Of all answers, half took at most").inner_text()
    assert re.findall(r"[\d.]+ ms", text) == [f"{half:.1f} ms", f"{p95:.1f} ms", f"{p99:.1f} ms"]
    known = served.labels >= 0
    right = served.logits.argmax(axis=1)[known] == served.labels[known]
    assert tab.metric("Accuracy, labelled rows") == percent(float(right.mean()))
    assert tab.metric("Rows served") == f"{len(served.ids):,}"
    legend = tab.chart("Confidence of served rows").locator("svg text").filter(has_text="held-out data")
    tab.see(legend)
    tab.choose("Compare confidence with", "nothing", address="reference=none")
    tab.gone(legend)
    tab.check()


_COVERED = """n => {
    const chart = document.querySelectorAll('[data-testid=stVegaLiteChart]')[n];
    const bar = chart.closest('[data-testid=stFullScreenFrame]').querySelector('[data-testid=stElementToolbar]');
    const box = bar.querySelector('[data-testid=stElementToolbarButtonContainer]').getBoundingClientRect();
    const over = b => b.width && b.left < box.right && b.right > box.left && b.top < box.bottom && b.bottom > box.top;
    const said = 'svg text, svg path[aria-roledescription], button, p, label, input, [role=slider]';
    return [...document.querySelectorAll(said)].filter(e => !bar.contains(e) && over(e.getBoundingClientRect())).map(
        e => e.textContent || e.ariaLabel || e.tagName);
}"""


def test_the_buttons_of_a_chart_cover_nothing(tab: Tab) -> None:
    for address, charts in (("reliability?run=leaves", 4), ("decide?run=leaves/model.onnx", 1)):
        tab.open(address)
        tab.drawn()
        found = tab.page.locator("[data-testid=stVegaLiteChart]")
        assert found.count() == charts
        for n in range(charts):
            found.nth(n).hover()
            buttons = (
                found.nth(n).locator("xpath=ancestor::*[@data-testid='stFullScreenFrame'][1]").get_by_role("button")
            )
            tab.see(buttons)
            assert tab.page.evaluate(_COVERED, n) == [], (address, n)
    tab.check()
