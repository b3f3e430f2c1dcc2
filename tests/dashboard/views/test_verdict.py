"""The first screen of a subject: what the command says of it, what to do, and whether it helped."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calibrant.calibration.compare import Difference
from calibrant.calibration.evaluate_files import evaluate_files
from calibrant.dashboard import jobs
from calibrant.dashboard.numbers import verdicts
from calibrant.dashboard.views.verdict import did_it_help
from calibrant.dashboard.widgets.markdown_escape import plain

from .conftest import Page, words

_FILE = Path(__file__).resolve().parents[2] / "verdict_cases.py"


def cases() -> Any:
    spec = importlib.util.spec_from_file_location("verdict_cases", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["verdict_cases"] = module
    spec.loader.exec_module(module)
    return module


CASES = cases()
QUICK = ("over-confident", "in-sample", "forty rows")


@pytest.fixture
def anew() -> Iterator[None]:
    verdicts._found.clear()
    yield
    verdicts._found.clear()


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in CASES.CASES])
def test_a_prepared_case_has_its_level_first_cause_and_first_remedy_on_the_page(
    name: str, page: Page, tmp_path: Path, anew: None
) -> None:
    case = CASES.prepare(name, tmp_path / "case")
    drawn = page("reliability", tmp_path, run="case", predictions=case.predictions.stem)
    (*_, model) = evaluate_files([case.predictions], [] if case.calibrator is None else [case.calibrator])
    assert model.verdict is not None
    assert model.verdict.level == case.level
    text = words(drawn)
    assert f"**{plain(model.verdict.sentence)}**" in text
    if case.first_cause is not None:
        assert (
            f"**Why.** {plain(model.verdict.causes[0].text)} :gray-badge[{case.first_cause.replace('-', ' ')}]" in text
        )
    if case.first_remedy is not None:
        assert model.verdict.remedies[0].kind == case.first_remedy
        assert f"**What to do.** {plain(model.verdict.remedies[0].text)}" in text


def test_the_remedy_is_a_button_that_runs_its_command(
    page: Page, tmp_path: Path, anew: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    CASES.prepare("over-confident", tmp_path / "case")
    started: list[Any] = []
    monkeypatch.setattr(jobs, "start", lambda *a, **k: started.append((a, k)))
    page("reliability", tmp_path, run="case").button(key="remedy-0").click().run()
    (_, _, arguments), more = started[0]
    out = tmp_path / "case" / "calibrator-new.json"
    assert arguments == (
        "calibrate", str(tmp_path / "case/test.parquet"), "--method", "temperature", "--out", str(out)
    )  # fmt: skip
    assert (more["done_when"], more["about"]["writes"]) == (out, "case/calibrator-new.json")


def test_a_calibrator_that_harms_can_be_left_out_with_one_click(page: Page, tmp_path: Path, anew: None) -> None:
    CASES.prepare("harmful calibrator", tmp_path / "case")
    drawn = page("reliability", tmp_path, run="case", predictions="test")
    assert "**Did it help?** No, it harms" in words(drawn)
    assert [b.label for b in drawn.button if b.key == "remedy-0"] == ["Show it without"]


def test_whether_it_helped_is_told_by_the_interval_of_the_paired_change() -> None:
    def change(low: float, high: float) -> dict[str, Difference]:
        d = Difference(1.0, 1.0 + (low + high) / 2, (low + high) / 2, low, high)
        return {"nll": d, "ece": d, "accuracy": d}

    assert did_it_help(change(-0.3, -0.1)).startswith("Yes: NLL 1.0000 → 0.8000 (-0.3000 to -0.1000)")
    assert did_it_help(change(-0.3, 0.1)).startswith("It cannot be told")
    assert did_it_help(change(0.1, 0.3)).startswith("No, it harms")


def test_a_failed_job_is_said_once(page: Page, tmp_path: Path, anew: None) -> None:
    CASES.prepare("forty rows", tmp_path / "case")
    folder = tmp_path / jobs.FOLDER
    folder.mkdir()
    block = {
        "id": "a", "label": "Fitting", "command": ["calibrant"], "pid": 1, "born": "once", "started": 1.0,
        "done_when": str(tmp_path / "gone.json"), "about": {"kind": "remedy", "run": "case", "writes": "gone.json"},
    }  # fmt: skip
    (folder / "a.json").write_text(json.dumps(block))
    (folder / "a.log").write_text("Error: there are too few rows\n")
    (folder / "a.out").write_text("")
    drawn = page("reliability", tmp_path, run="case")
    assert [e.value for e in drawn.error] == ["there are too few rows"]
    assert jobs.states(tmp_path) == []
