"""What crosses from the command line to the app."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibrant.dashboard.settings import Settings, find_demo


@pytest.mark.parametrize(
    "settings", [Settings(Path("runs")), Settings(Path("a b/ü"), (Path("x"), Path("y y")), Path("demo"))]
)
def test_settings_survive_the_command_line(settings: Settings) -> None:
    assert Settings.from_arguments(settings.to_arguments()) == settings


def test_another_number_of_arguments_is_refused() -> None:
    with pytest.raises(ValueError, match="calibrant dashboard"):
        Settings.from_arguments([])


def test_only_a_finished_demo_outside_of_the_runs_is_offered(tmp_path: Path) -> None:
    demo, runs = tmp_path / "calibrant-demo", tmp_path / "runs"
    runs.mkdir()
    assert find_demo(tmp_path, runs) is None
    demo.mkdir()
    (demo / "demo.json").write_text(json.dumps({"finished": True}))
    assert find_demo(tmp_path, runs) is None
    (demo / "predictions").mkdir()
    assert find_demo(tmp_path, runs) == demo.resolve()
    assert find_demo(tmp_path, tmp_path) is None  # it is seen anyhow
