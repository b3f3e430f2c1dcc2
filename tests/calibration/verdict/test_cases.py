"""Prepared cases: the same right verdict in the table, in the JSON and in the report of one call."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibrant.calibration.cli.evaluate import evaluate
from tests.verdict_cases import CASES, prepare

QUICK = ("over-confident", "prior shift", "forty rows")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in sorted(CASES)]
)
def test_each_case_gets_its_level_first_cause_and_first_remedy_everywhere(name: str, tmp_path: Path) -> None:
    case = prepare(name, tmp_path / "a folder")
    report, block = tmp_path / "r.html", tmp_path / "r.json"
    calibrator = [] if case.calibrator is None else ["--calibrator", str(case.calibrator)]
    arguments = [str(case.predictions), *calibrator, "--report", str(report), "--json-out", str(block)]
    result = CliRunner().invoke(evaluate, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    model = json.loads(block.read_text())["models"][-1]
    verdict = model["verdict"]
    assert verdict["level"] == case.level
    assert [c["kind"] for c in verdict["causes"]][:1] == [k for k in (case.first_cause,) if k]
    assert [r["kind"] for r in verdict["remedies"]][:1] == [k for k in (case.first_remedy,) if k]
    page = html.unescape(report.read_text())
    said = [verdict["sentence"], *(c["text"] for c in verdict["causes"][:3])]
    said += [text for r in verdict["remedies"][:3] for text in (r["text"], r["command"]) if text]
    for text in said:
        assert text in result.stdout
        assert text in page
    own = result.stdout.index(f"{model['name']}: {verdict['sentence']}")
    assert own < result.stdout.index("95 % interval")  # before the table
    assert page.index(verdict["sentence"]) < page.index("<h2>Reliability")
