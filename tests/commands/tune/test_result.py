"""What a search leaves behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from calibrant.commands.tune.measure import Figures
from calibrant.commands.tune.result import Result
from calibrant.commands.tune.search import Trial
from calibrant.commands.tune.settings import Setting
from calibrant.serve.cli import serve
from calibrant.serve.config_file import read_config_file
from calibrant.serve.processes.layout import Layout

from .conftest import candidate


def result(folder: Path) -> Result:
    (folder / "my model.onnx").write_bytes(b"12345")
    given = replace(candidate("fp32"), path=folder / "my model.onnx")
    made = candidate("int8", accuracy=0.7, refused="accuracy -10.00 points (-11.00 .. -9.00), beyond 1")
    trials = [
        Trial(given, Setting(Layout(1, 2), 8), Figures(120.0, 100.0, 5.0, 18.0)),
        Trial(made, Setting(Layout(1, 2), 8), Figures(500.0, 400.0, 2.0, 9.0)),
        Trial(given, Setting(Layout(2, 1), 4), Figures(250.0, 220.0, 4.0, 17.5, callers_busy=0.95)),
        Trial(given, Setting(Layout(2, 1), 2), None, "the server ended"),
    ]
    return Result("a machine", "birds", [given, made], 500, 0.02, trials, trials[2], ["fp32 2 x 1, cap 1"])


def test_the_server_reads_what_is_written(tmp_path: Path) -> None:
    found = result(tmp_path)
    found.write(tmp_path / "tuned")
    options = read_config_file(tmp_path / "tuned" / "serve.toml", serve.params).options
    (model,) = options.pop("models")
    assert options == {"workers": 2, "threads": 1, "batch_cap": 4}
    name, _, path = model.partition("=")
    assert name == "birds"
    assert Path(path).resolve() == tmp_path / "my model.onnx"
    told = json.loads((tmp_path / "tuned" / "tune.json").read_text())
    assert told["chosen"]["batch_cap"] == 4
    assert told["as_served_untuned"]["rate"] == 100.0
    assert [f["refused"] is None for f in told["files"]] == [True, False]
    assert told["trials"][3]["error"] == "the server ended"
    assert (tmp_path / "tuned" / "tune.png").read_bytes()[:4] == b"\x89PNG"


def test_the_text_says_what_is_served_what_not_and_what_was_not_measured(tmp_path: Path) -> None:
    text = result(tmp_path).text()
    assert "fp32, 2 workers of 1 thread, cap 4, 2.20 times what the server gives untuned" in text
    assert "int8 is not served: accuracy -10.00 points" in text
    assert "no time was left for: fp32 2 x 1, cap 1" in text
    assert "250*" in text
    assert "/s within 20 ms" in text
    assert "/s within" not in replace(result(tmp_path), p99=None).text()


def test_the_picture_has_a_mark_for_each_setting_hollow_where_refused(tmp_path: Path) -> None:
    (axes,) = result(tmp_path).figure().axes
    marks = {c.get_label(): c for c in axes.collections if "fp" in str(c.get_label()) or "int" in str(c.get_label())}
    assert [tuple(p) for p in marks["fp32"].get_offsets()] == [(100.0, 80.0), (220.0, 80.0)]
    assert [tuple(p) for p in marks["int8 (refused)"].get_offsets()] == [(400.0, 70.0)]
    assert marks["int8 (refused)"].get_facecolor()[0].tolist() == [1, 1, 1, 1]
    assert axes.get_xlabel() == "answers a second with p99 within 20 ms"
