"""Nothing that took work to make is replaced unless it is said."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.commands.root import COMMANDS, cli
from calibrant.errors import ConfigError
from calibrant.overwrite import refuse_to_replace

# --out is a folder that several calls fill, or that a call goes on with.
GOES_ON = {"demo", "search", "study", "sweep", "features"}


def test_a_file_and_a_folder_with_a_result_are_kept(tmp_path: Path) -> None:
    file, folder = tmp_path / "calibrator.json", tmp_path / "run"
    refuse_to_replace(None, overwrite=False)
    refuse_to_replace(file, overwrite=False)
    file.write_text("{}")
    with pytest.raises(ConfigError, match=r"calibrator\.json: is there already; pass --overwrite"):
        refuse_to_replace(file, overwrite=False)
    refuse_to_replace(file, overwrite=True)
    folder.mkdir()
    refuse_to_replace(folder, overwrite=False, marker="config.json")
    (folder / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="holds a result already"):
        refuse_to_replace(folder, overwrite=False, marker="config.json")


def commands() -> list[tuple[str, click.Command]]:
    found = []
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        found += [(name, command)]
        if isinstance(command, click.Group):
            found += [(name, inner) for inner in command.commands.values()]
    return found


@pytest.mark.parametrize(("name", "command"), [(n, c) for n, c in commands() if n not in GOES_ON])
def test_every_command_that_writes_knows_the_word(name: str, command: click.Command) -> None:
    options = {o for p in command.params for o in p.opts}
    if "--out" in options:
        assert "--overwrite" in options, name


def test_a_calibrator_is_kept_unless_the_option_or_the_environment_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("scipy")
    rows = tmp_path / "rows.npz"
    logits = np.random.default_rng(0).normal(size=(200, 3))
    np.savez(rows, logits=logits, labels=logits.argmax(1))
    out = tmp_path / "c.json"
    line = ["calibrate", str(rows), "--out", str(out)]
    out.write_text("made by hand")
    monkeypatch.delenv("CALIBRANT_OVERWRITE", raising=False)
    refused = CliRunner().invoke(cli, line)
    assert isinstance(refused.exception, ConfigError)
    assert out.read_text() == "made by hand"
    assert CliRunner().invoke(cli, [*line, "--overwrite"]).exit_code == 0
    assert CliRunner().invoke(cli, line, env={"CALIBRANT_OVERWRITE": "1"}).exit_code == 0
