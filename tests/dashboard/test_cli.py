"""The command: what it refuses, and the options that it gives to Streamlit."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibrant.dashboard import server
from calibrant.dashboard.cli import dashboard
from calibrant.dashboard.settings import Settings
from calibrant.errors import CalibrantError, ConfigError


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing"], "missing: RUNS no such folder"),
        (["file"], "file: RUNS is not a folder"),
        (["runs", "--images", "gone"], "gone: --images no such folder"),
        (["runs", "--host", "0.0.0.0"], "needs --allow-host"),
        (["runs", "--host", "not a host"], "not a host:0: cannot listen"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(dashboard, arguments)
    assert isinstance(result.exception, CalibrantError)
    assert words in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_port_in_use_is_refused_and_without_a_wish_another_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}: cannot listen \(Address already in use\)"):
            server.choose_port("127.0.0.1", port)
    assert server.choose_port("127.0.0.1", 0) > 0


def test_the_default_port_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(server, "DEFAULT_PORT", taken.getsockname()[1])
        assert server.choose_port("127.0.0.1", None) not in (0, server.DEFAULT_PORT)


def test_settings_cross_over_as_arguments() -> None:
    settings = Settings(Path("/a b/ü"), (Path("/c"),))
    assert Settings.from_arguments(settings.to_arguments()) == settings


def test_every_option_is_one_that_streamlit_knows() -> None:
    """A misspelled flag would be dropped without a word, and with it what it protects."""
    config = pytest.importorskip("streamlit.config")
    known = set(config._config_options_template)
    flags = {name.replace("_", ".") for name in server.options("127.0.0.1", 1, ["localhost"])}
    assert flags - known == set()
    assert {"server.allowedHosts", "server.address", "browser.gatherUsageStats", "theme.font"} <= flags


def test_no_file_of_the_dashboard_is_named_like_a_module_of_python() -> None:
    """Streamlit puts the folder of the script first on the import path: a numbers.py there breaks numpy."""
    import sys

    names = {p.stem for p in Path(server.__file__).parent.glob("*.py")}
    assert names & set(sys.stdlib_module_names) == set()
