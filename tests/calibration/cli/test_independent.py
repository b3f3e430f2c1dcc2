"""The commands on a file with several labels a row."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.calibration.cli.calibrate import calibrate
from calibrant.calibration.cli.evaluate import evaluate
from calibrant.errors import ConfigError


@pytest.fixture
def multi(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    z = rng.normal(-0.5, 1.5, (400, 3))
    y = rng.random((400, 3)) < 1 / (1 + np.exp(-z))
    np.savez(tmp_path / "multi.npz", logits=3 * z, labels=y.astype(int), class_names=["cat", "dog", "elm"])
    return tmp_path / "multi.npz"


def test_evaluate_calibrate_evaluate(multi: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "c.json", tmp_path / "r.html"
    done = CliRunner().invoke(calibrate, [str(multi), "--method", "auto", "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0
    assert json.loads(out.read_text())["fitted_on"]["outcome"] == "independent"
    done = CliRunner().invoke(
        evaluate, [str(multi), "--calibrator", str(out), "--json", "--report", str(page)], catch_exceptions=False
    )
    before, after = json.loads(done.output)["models"]
    assert [x["name"] for x in after["labels"]] == ["cat", "dog", "elm"]
    assert after["mean"]["ece"]["value"] < before["mean"]["ece"]["value"] / 2
    assert page.read_text().startswith("<!doctype html>")


def test_base_rates_of_the_place_of_use(multi: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.json"
    CliRunner().invoke(
        calibrate, [str(multi), "--target-prior", "0.1,0.2,0.3", "--out", str(out)], catch_exceptions=False
    )
    assert json.loads(out.read_text())["fit"]["base_rates"]["target"] == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(("command", "option"), [(evaluate, ["--adjust", "1"]), (calibrate, ["--conformal", "0.1"])])
def test_options_for_one_class_a_row_are_refused(command: object, option: list[str], multi: Path) -> None:
    with pytest.raises(ConfigError, match="labels of this one are independent"):
        CliRunner().invoke(command, [str(multi), *option], catch_exceptions=False)  # type: ignore[arg-type]
