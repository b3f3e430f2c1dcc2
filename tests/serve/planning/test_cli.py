"""`calibrant plan`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibrant.errors import ConfigError
from calibrant.serve.planning.cli import plan, seconds


@pytest.mark.parametrize(("text", "value"), [("50ms", 0.05), ("0.2s", 0.2), ("1.5", 1.5)])
def test_times(text: str, value: float) -> None:
    assert seconds(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "fast", "-1s", "0ms", "2h"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ConfigError, match="is no time"):
        seconds(text)


def test_more_requests_take_more_machines(model_file: Path) -> None:
    def machines(rate: str) -> int:
        arguments = [str(model_file), "--rate", rate, "--p99", "1s", "--front-us", "100", "--json", "--spare", "0"]
        done = CliRunner().invoke(plan, arguments, catch_exceptions=False)
        assert done.exit_code == 0
        told = json.loads(done.stdout)
        assert told["measured"]["front_us"] == 100
        assert told["p99_ms"] <= 1000
        return int(told["machines"])

    assert machines("1") == 1
    assert machines("1000000") > 10
