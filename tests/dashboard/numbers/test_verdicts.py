"""The verdict of a file, and its remedy as a command that runs here."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant.calibration.evaluate_files import evaluate_files
from calibrant.calibration.verdict.verdict import Remedy
from calibrant.dashboard.folder.index import scan
from calibrant.dashboard.numbers import verdicts
from calibrant.dashboard.numbers.predictions_through import Scored

from ..conftest import write_model, write_run


def test_it_is_what_the_command_says_and_is_kept(tmp_path: Path) -> None:
    run = write_run(tmp_path / "mine", rows=300)
    (found,) = scan(tmp_path).runs
    scored = Scored.of(found.find("test"), scan(tmp_path).calibrators[0])  # type: ignore[arg-type]
    assert verdicts.known(scored) is None
    (_, model) = evaluate_files([run / "predictions/test.parquet"], [run / "calibrator.json"])
    assert verdicts.verdict(scored) == model.verdict == verdicts.known(scored)


def test_a_deployed_file_is_judged_by_its_own_formula(tmp_path: Path) -> None:
    write_run(tmp_path / "mine", rows=600)
    write_model(tmp_path / "mine" / "model.onnx", source={"checkpoint_sha256": "weights of mine"})
    folder_index = scan(tmp_path)
    test = folder_index.runs[0].find("test")
    assert test is not None
    alone, deployed = Scored.of(test), Scored.of(test, folder_index.models[0])
    assert verdicts.verdict(deployed).sentence != verdicts.verdict(alone).sentence


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("calibrant calibrate x.parquet --method vector --out new.json", ["--method", "vector"]),
        (
            "calibrant evaluate x.parquet --calibrator c.json --adjust 1 --target-prior uniform",
            # The validation rows are of training's shares, or nearly: the file is for those of other rows.
            ["--adjust", "1", "--target-prior", "uniform", "--rows-follow", "train"],
        ),
        (
            "calibrant calibrate x.parquet --method histogram --option mixture=false --out new.json",
            ["--method", "histogram", "--option", "mixture=false"],
        ),
        ("calibrant evaluate x.parquet", None),
        (None, None),
    ],
)
def test_a_remedy_is_fitted_on_the_validation_rows_beside_the_run(
    command: str | None, options: list[str] | None, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "mine", rows=60)
    (found,) = scan(tmp_path).runs
    test = found.find("test")
    assert test is not None
    asked = verdicts.order(Remedy("recalibrate", command, "Fit"), found, test)
    if options is None:
        assert asked is None
        return
    assert asked is not None
    val, out = str(run / "predictions/val.parquet"), str(run / "calibrator-new.json")
    assert asked.arguments == ("calibrate", val, *options, "--out", out)
    (run / "calibrator-new.json").write_text("{}")
    again = verdicts.order(Remedy("recalibrate", command, "Fit"), found, test)
    assert again is not None
    assert again.writes == run / "calibrator-new-2.json"
