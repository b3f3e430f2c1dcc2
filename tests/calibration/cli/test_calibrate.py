"""The commands end to end: what they say, JSON, exit codes, mistakes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.model_card import Prior
from calibrant.artifacts.predictions import Predictions, PredictionsFile
from calibrant.calibration import Calibrator, evaluate, fit, metrics
from calibrant.calibration.cli.calibrate import calibrate
from calibrant.calibration.cli.evaluate import evaluate as evaluate_command
from calibrant.calibration.softmax import softmax
from calibrant.errors import CalibrantError, ConfigError

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "calibration"
Run = Callable[..., str]


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def test_fit_writes_a_calibrator_that_says_what_it_was_fitted_on(run: Run, predictions: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.json"
    text = run(calibrate, predictions, "--out", out)
    calibrator = Calibrator.load(out)
    assert f"T = {calibrator.parameters['temperature']:.4f}" in text
    assert calibrator.fitted_on["rows"] == 1500
    assert calibrator.fitted_on["path"] == "val.parquet"
    assert len(calibrator.fitted_on["sha256"]) == 64
    assert len(calibrator.fitted_on["prior"]) == 10
    before, after = calibrator.metrics["before"]["nll"], calibrator.metrics["after"]["nll"]
    assert after["high"] < before["low"]
    assert str(tmp_path) not in out.read_text()


def test_the_calibrator_of_a_run_lies_in_the_run_where_evaluate_finds_it(
    run: Run, predictions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inside = tmp_path / "birds" / "predictions"
    inside.mkdir(parents=True)
    for split in ("val", "test"):
        (inside / f"{split}.parquet").write_bytes(predictions.read_bytes())
    assert run(calibrate, "birds").strip().endswith("Wrote birds/calibrator.json")
    assert "test, calibrator" in run(evaluate_command, "birds")
    run(calibrate, predictions)
    assert Calibrator.load(tmp_path / "calibrator.json").method == "temperature"


def test_the_commands_agree_with_the_library(run: Run, predictions: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.json"
    run(calibrate, predictions, "--method", "vector", "--out", out)
    block = json.loads(run(evaluate_command, predictions, "--calibrator", out, "--json"))
    data = arrays(GOLDEN / "resnet20_cal.npz")
    z, y = data["logits"][:1500], data["labels"][:1500]
    names = [m["name"] for m in block["models"]]
    assert names == ["val", "val, c"]
    for model, probs in zip(block["models"], (softmax(z), Calibrator.load(out).probabilities(z)), strict=True):
        assert model["metrics"]["ece"]["value"] == pytest.approx(metrics.ece(probs, y), abs=1e-10)
        assert model["metrics"]["ece"] == pytest.approx(evaluate(probs, y).ece.to_dict(), abs=1e-9)
    assert [g["name"] for g in block["models"][0]["groups"]] == ["head", "medium", "tail"]


def test_decisions_are_fitted_along(run: Run, predictions: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.json"
    text = run(calibrate, predictions, "--out", out, "--conformal", 0.1, "--conformal", 0.05, "--set-kind", "aps",
               "--abstain-risk", 0.1)  # fmt: skip
    found = Calibrator.load(out)
    assert found.conformal is not None
    assert found.abstain is not None
    assert set(found.conformal) == {"0.1", "0.05"}
    assert found.conformal["0.05"]["threshold"] > found.conformal["0.1"]["threshold"]
    assert found.abstain["risk_high"] <= 0.1
    assert "Answer from confidence" in text


def test_target_prior_weights_and_adjust_fits_inside(run: Run, predictions: Path, tmp_path: Path) -> None:
    temperatures = {}
    for name, arguments in {
        "plain": (),
        "weighted": ("--target-prior", str(tmp_path / "prior.json")),
        "inside": ("--adjust", "1.0"),
    }.items():
        (tmp_path / "prior.json").write_text(json.dumps(list(range(1, 11))))
        run(calibrate, predictions, "--out", tmp_path / "c.json", *arguments)
        calibrator = Calibrator.load(tmp_path / "c.json")
        temperatures[name] = calibrator.parameters["temperature"]
        assert ("strength" in calibrator.fitted_on) == (name == "inside")
    assert len(set(temperatures.values())) == 3
    text = run(evaluate_command, predictions, "--target-prior", "uniform")
    assert "weighted to the target prior" in text


@pytest.mark.parametrize(("absorbed", "total", "target"), [(1.0, 1.0, None), (1.0, 1.5, None), (0.5, 1.0, "skewed")])
def test_adjust_is_the_total_of_what_the_loss_absorbed_and_the_file_will_apply(
    run: Run, absorbed: float, total: float, target: str | None, predictions: Path, tmp_path: Path
) -> None:
    """The map is fitted inside the very shift that `export --adjust` of the same strength puts into the graph."""
    data = PredictionsFile.open(predictions).read()
    Predictions(data.ids, data.labels, data.logits, replace(data.source, absorbed=absorbed)).write(predictions)
    shares = tuple((np.arange(1, 11) / 55).tolist())
    (tmp_path / "prior.json").write_text(json.dumps(shares))
    arguments = ("--target-prior", tmp_path / "prior.json") if target else ()
    run(calibrate, predictions, "--out", tmp_path / "c.json", "--adjust", total, *arguments)
    found = Calibrator.load(tmp_path / "c.json")
    prior = Prior(data.source.train_prior, shares if target else None, absorbed, total - absorbed)
    shift = prior.shift()
    if shift is None:
        assert "strength" not in found.fitted_on
        shift = np.zeros(10)
    else:
        fitted_inside = found.fitted_on["strength"] * np.asarray(found.fitted_on["log_prior_ratio"])
        np.testing.assert_allclose(fitted_inside, shift, atol=1e-12)
    best = fit("temperature", data.logits, data.labels, log_prior_ratio=shift, strength=1.0)
    assert found.parameters["temperature"] == pytest.approx(best.parameters["temperature"], rel=1e-9)


def test_method_options_pass_through(run: Run, predictions: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.json"
    run(calibrate, predictions, "--method", "histogram", "--option", "bins=4", "--out", out)
    assert len(Calibrator.load(out).parameters["values"][0]) == 4


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        (calibrate, ("--method", "temprature"), "did you mean"),
        (calibrate, ("--option", "x"), "NAME=VALUE"),
        (calibrate, ("--option", "bins=3"), "no option"),
        (calibrate, ("--set-kind", "aps"), "--conformal"),
        (calibrate, ("--abstain-risk", "0.1", "--abstain-coverage", "0.5"), "one of them"),
        (evaluate_command, ("--figure", "x.bmp"), ".bmp"),
        (evaluate_command, ("--target-prior", "nowhere.json"), "cannot be read"),
    ],
)
def test_mistakes_are_named(
    run: Run, predictions: Path, command: object, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(CalibrantError, match=re.escape(message)):
        run(command, predictions, *arguments)


def test_a_calibrator_of_another_model_is_refused(run: Run, predictions: Path, tmp_path: Path) -> None:
    from calibrant.calibration import fit

    fit("temperature", np.eye(3), [0, 1, 1]).save(tmp_path / "c.json")
    with pytest.raises(CalibrantError, match="3 classes"):
        run(evaluate_command, predictions, "--calibrator", tmp_path / "c.json")
    np.savez(tmp_path / "plain.npz", logits=2 * np.eye(3), labels=np.array([0, 1, 1]))
    with pytest.raises(ConfigError, match="do not say"):
        run(calibrate, tmp_path / "plain.npz", "--adjust", "1", "--kind", "logits")


@pytest.mark.slow  # netcal imports torch
def test_cross_check_knows_every_difference(run: Run, predictions: Path) -> None:
    pytest.importorskip("netcal")
    found = json.loads(run(calibrate, "cross-check", predictions, "--json"))
    by_name = {c["what"]: c for c in found if c["library"] == "netcal"}
    assert by_name["ECE"]["agrees"]
    assert not by_name["temperature T (float32)"]["agrees"]
    assert by_name["temperature T (float32)"]["theirs"] == pytest.approx(1.0, abs=1e-3)
    assert all(c["agrees"] or c["expected"] for c in found)


def test_import_is_light(
    run: Run,
) -> None:
    code = (
        "import sys; import calibrant.calibration; "
        "print([m for m in ('torch', 'matplotlib', 'netcal', 'pyarrow', 'scipy.stats', 'scipy.optimize') "
        "if m in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (printed.stdout.strip(), printed.stderr) == ("[]", "")


def test_the_first_line_says_whether_the_calibrated_confidence_can_be_trusted(
    run: Run, predictions: Path, tmp_path: Path
) -> None:
    said = run(calibrate, predictions, "--out", tmp_path / "c.json")
    kept = json.loads((tmp_path / "c.json").read_text())["metrics"]["verdict"]
    assert said.splitlines()[0] == kept["sentence"]
    assert all(remedy["command"] is None for remedy in kept["remedies"])  # it would name folders of this machine
    assert len(kept["judged_shift"]) == 10
