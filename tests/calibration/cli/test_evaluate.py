"""`evaluate` end to end: pages, figures, differences, and nothing left lying about."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.artifacts.predictions import Predictions, Source
from calibrant.calibration.cli.evaluate import evaluate as evaluate_command
from calibrant.errors import CheckFailed, ConfigError, DataError

Run = Callable[..., str]


def test_page_is_self_contained_and_foreign_names_stay_text(run: Run, predictions: Path, tmp_path: Path) -> None:
    page, figure = tmp_path / "r.html", tmp_path / "r.png"
    run(evaluate_command, predictions, "--report", page, "--figure", figure, "--json-out", tmp_path / "r.json")
    html = page.read_text()
    assert "<script" not in html
    assert not re.search(r"(src|href)=\"(?!data:)", html)
    assert "airplane &lt;b&gt;" in html
    assert "airplane <b>" not in html
    assert html.count("data:image/svg+xml;base64,") == 3
    assert "over-confident" in html
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert len(json.loads((tmp_path / "r.json").read_text())["models"]) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.html", "r.json", "r.png", "val.parquet", "val.stats.npz"]


def test_svg_figures_are_the_same_each_time(run: Run, predictions: Path, tmp_path: Path) -> None:
    run(evaluate_command, predictions, "--figure", tmp_path / "a.svg")
    run(evaluate_command, predictions, "--figure", tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_paired_differences_match_rows_by_id_and_tell_signal_from_noise(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n, classes = 4000, 5
    labels = rng.integers(0, classes, n)
    signal = 2.0 * np.eye(classes)[labels] + rng.normal(size=(n, classes))
    ids = tuple(f"row{i}" for i in range(n))
    source = Source(tuple("abcde"))
    sharp = Predictions(ids, labels, (4 * signal).astype(np.float32), source)
    fair = Predictions(ids, labels, (2 * signal).astype(np.float32), source)
    sharp.write(tmp_path / "sharp.parquet")
    fair.rows(rng.permutation(n)).write(tmp_path / "fair.parquet")
    files = [str(tmp_path / "sharp.parquet"), str(tmp_path / "fair.parquet")]
    result = CliRunner().invoke(evaluate_command, [*files, "--compare", "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)["differences"]["fair"]
    assert found["accuracy"]["difference"] == 0  # the same winners, whatever the order of the rows
    assert not found["accuracy"]["clear"]
    assert found["nll"]["clear"]
    assert found["nll"]["high"] < 0
    assert "beyond noise" in CliRunner().invoke(evaluate_command, [*files, "--compare"]).stdout

    (tmp_path / "again").mkdir()
    turned = Predictions(ids, (labels + 1) % classes, fair.logits, source)
    turned.write(tmp_path / "again" / "fair.parquet")
    with pytest.raises(DataError, match=r"fair\.parquet: labels some ids otherwise .*leave out --compare"):
        CliRunner().invoke(
            evaluate_command, [files[1], str(tmp_path / "again" / "fair.parquet"), "--compare"], catch_exceptions=False
        )
    both = [files[1], str(tmp_path / "again" / "fair.parquet"), "--report", str(tmp_path / "r.html")]
    CliRunner().invoke(evaluate_command, both, catch_exceptions=False)
    assert f"Calibration of {tmp_path.name}/fair, again/fair<" in (tmp_path / "r.html").read_text()
    fair.rows(np.arange(100)).write(tmp_path / "part.parquet")
    with pytest.raises(DataError, match=r"part\.parquet: does not hold the same labelled ids"):
        CliRunner().invoke(
            evaluate_command, [files[0], str(tmp_path / "part.parquet"), "--compare"], catch_exceptions=False
        )
    with pytest.raises(ConfigError, match="nothing to compare"):
        CliRunner().invoke(evaluate_command, [files[0], "--compare"], catch_exceptions=False)


def test_a_pipeline_is_stopped_by_what_it_requires(predictions: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    met = runner.invoke(evaluate_command, [str(predictions), "--require", "accuracy>0.5,verdict>=not-trusted"])
    assert met.exit_code == 0, met.output
    with pytest.raises(CheckFailed, match=r"val breaks ece<0.0001: it is 0\.\d+") as failed:
        runner.invoke(evaluate_command, [str(predictions), "--require", "ece<0.0001"], catch_exceptions=False)
    assert failed.value.exit_code == 1
    with pytest.raises(ConfigError, match='did you mean "verdict"') as wrong:
        runner.invoke(evaluate_command, [str(predictions), "--require", "verdct>=care"], catch_exceptions=False)
    assert wrong.value.exit_code == 2


def test_stakes_move_the_level(predictions: Path) -> None:
    def level(*options: str) -> str:
        result = CliRunner().invoke(evaluate_command, [str(predictions), "--json", *options], catch_exceptions=False)
        return str(json.loads(result.stdout)["models"][0]["verdict"]["level"])

    assert level("--margin", "0.4") == "trusted"
    assert level("--policy", "high") == level("--stakes", "high") == "not-trusted"
    with pytest.raises(ConfigError, match='did you mean "high"'):
        level("--policy", "hihg")
