"""The command: what it says it takes, what it refuses before anything is loaded, how it is gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from calibrant.commands.fit.cli import _again, fit
from calibrant.errors import ConfigError


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a time"):
        CliRunner().invoke(fit, ["in", "--time", "soon"], catch_exceptions=False)


def test_choices_are_listed() -> None:
    assert "[fast|balanced|best]" in CliRunner().invoke(fit, ["--help"]).output


def test_an_interrupted_line_is_repeated_as_it_was() -> None:
    options = {"preset": "best", "seed": 1, "model": None, "device": "auto", "image_size": 128}
    assert _again(Path("my in"), None, "10m", options) == [
        "my in", "--time", "10m", "--preset", "best", "--image-size", "128",
    ]  # fmt: skip
