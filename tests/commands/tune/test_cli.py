"""`calibrant tune`."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from calibrant.commands.tune.cli import tune
from calibrant.errors import ConfigError
from calibrant.serve.cli import serve


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--precision", "int4"], 'no precision "int4"; did you mean "int8"?'),
        (["--p99", "soon"], '"soon" is no time'),
        (["--time", "soon"], '"soon" is not a time'),
    ],
)
def test_mistakes_are_told_before_anything_is_measured(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        CliRunner().invoke(tune, ["none.onnx", "--data", "none", *arguments], catch_exceptions=False)


def test_what_was_tuned_before_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALIBRANT_OVERWRITE", raising=False)
    (tmp_path / "serve.toml").touch()
    with pytest.raises(ConfigError, match="holds a result already"):
        CliRunner().invoke(tune, ["none.onnx", "--data", "none", "--out", str(tmp_path)], catch_exceptions=False)


@pytest.mark.slow  # 8 s: one real server, and a look at the file that was written
def test_a_real_server_is_measured_and_the_file_is_served(
    tmp_path: Path, tiny: ModuleType, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = tiny.write(tmp_path / "my birds.onnx", tiny.card(name="model"))
    arguments = [str(model), "--data", str(pictures), "--out", str(tmp_path / "out"), "--precision", "fp32"]
    budget = ["--time", "0.001s", "--seconds", "0.3", "--p99", "10s", "--json"]
    done = CliRunner().invoke(tune, [*arguments, *budget], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["pictures"], told["files"][0]["accuracy"][0]) == (60, 0.8)
    assert told["chosen"] == told["trials"][0] == told["as_served_untuned"]
    assert told["chosen"]["rate"] == pytest.approx(0.9 * told["chosen"]["capacity"])
    assert told["chosen"]["failed"] == 0
    checked = CliRunner().invoke(serve, ["--config", str(tmp_path / "out" / "serve.toml"), "--check"])
    assert checked.exit_code == 0, checked.output
    assert "my-birds version 1" in checked.output  # a name that addresses can hold
    assert "This would start." in checked.output
