"""The command: what it says it takes, what it refuses before anything is loaded, how it is gone on with."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibrant.commands.fit.cli import _again, each_warning_once, fit
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


def test_a_sentence_is_said_once_whatever_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("calibrant.test_fit")
    log.propagate = False
    handler = logging.StreamHandler()
    log.addHandler(handler)
    logging.getLogger().addHandler(handler)
    try:
        with each_warning_once():
            for number in (0.1, 0.2):
                log.warning("stopped at %.1f", number)
                log.warning("%s: is vague", "temperature")
            log.warning("%s: is vague", "vector")
        log.warning("stopped at %.1f", 0.3)
    finally:
        log.removeHandler(handler)
        logging.getLogger().removeHandler(handler)
    said = capsys.readouterr().err.splitlines()
    assert said == ["stopped at 0.1", "temperature: is vague", "vector: is vague", "stopped at 0.3"]
