"""The commands of remedies, run as they are written: they must say what the remedy said."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibrant.calibration.cli.calibrate import calibrate
from calibrant.calibration.cli.evaluate import evaluate
from calibrant.calibration.evaluate_files import evaluate_files
from calibrant.calibration.verdict.remedies.trials import Call
from tests.verdict_cases import prepare


@pytest.mark.parametrize(
    "name",
    ["over-confident", "harmful calibrator", "prior shift", "in-sample", "the surest tenth", "a shift, and too sure"],
)
def test_the_command_of_the_first_remedy_gives_what_it_promised(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = prepare(name, tmp_path / "a folder")
    monkeypatch.chdir(tmp_path)
    calibrators = [] if case.calibrator is None else [case.calibrator]
    remedy = evaluate_files([case.predictions], calibrators)[-1].verdict.remedies[0]
    _, command, *arguments = shlex.split(remedy.command)
    if command == "calibrate":
        result = CliRunner().invoke(calibrate, [*arguments, "--json"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert Path("calibrator-new.json").is_file()
        ece = json.loads(result.stdout)["metrics"]["after"]["ece"]["value"]
    else:
        result = CliRunner().invoke(evaluate, [*arguments, "--json"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        ece = json.loads(result.stdout)["models"][-1]["metrics"]["ece"]["value"]
    assert ece == pytest.approx(remedy.gives["ece"]["value"], abs=1e-9 if remedy.kind != "adjust" else 2e-3)


def test_paths_are_quoted_and_what_was_said_is_said_again() -> None:
    call = Call(Path("my rows.parquet"), Path("c.json"), "uniform")
    assert call.evaluate("--cross-fit", "5", *call.prior()) == (
        "calibrant evaluate 'my rows.parquet' --calibrator c.json --cross-fit 5 --target-prior uniform"
    )
    assert call.calibrate("--method", "vector") == (
        "calibrant calibrate 'my rows.parquet' --method vector --out calibrator-new.json"
    )
    assert call.labels(0.05) == "calibrant labels 'my rows.parquet' --calibrator c.json"
    assert call.labels(0.02).endswith("--calibrator c.json --margin 0.02")
