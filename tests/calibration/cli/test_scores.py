"""`--kind` and `--outcome` say what a file does not tell, and win over nothing that it tells."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.artifacts.foreign.kinds import Kind
from calibrant.artifacts.foreign.outcome import Outcome
from calibrant.artifacts.foreign.read import Asked
from calibrant.calibration.cli.evaluate import evaluate
from calibrant.calibration.cli.scores import asked, score_options
from calibrant.errors import CalibrantError


@click.command()
@score_options
def show(score_kind: Kind | None, outcome: Outcome | None) -> None:
    click.echo(repr(asked(score_kind, outcome)))


def test_the_options_are_one_request() -> None:
    def said(*arguments: str) -> str:
        return CliRunner().invoke(show, arguments).output.strip()

    assert said() == "None"
    assert said("--probabilities") == said("--kind", "probabilities") == repr(Asked("probabilities"))
    assert said("--outcome", "independent") == repr(Asked(None, "independent"))


def test_a_small_file_is_evaluated_when_its_kind_is_said(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", scores=np.tile([[0.9, 0.1], [0.3, 0.7]], (4, 1)), labels=np.tile([0, 1], 4))

    def run(*arguments: str) -> str:
        called = CliRunner().invoke(evaluate, [str(tmp_path / "p.npz"), *arguments], catch_exceptions=False)
        return called.output

    with pytest.raises(CalibrantError, match="8 rows are too few"):
        run()
    assert "8 rows, 2 classes" in run("--kind", "probabilities")
    assert "infinite" not in run("--kind", "probabilities")
    with pytest.raises(CalibrantError, match="no percent"):
        run("--kind", "percent")
