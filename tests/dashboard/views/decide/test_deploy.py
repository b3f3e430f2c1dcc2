"""The button that sets the line in a deployed file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calibrant.dashboard import jobs

from ..conftest import Page, words


def test_the_button_runs_set_threshold_on_the_file(page: Page, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(jobs, "start", lambda *a, **k: started.append(a))
    drawn = page("decide", folder, run="leaves/model.onnx", threshold="83.5")
    assert "now hands off below 30 %" in words(drawn)
    assert any(c.value == "calibrant set-threshold leaves/model.onnx 0.835" for c in drawn.code)
    drawn.button(key="set-threshold").click().run()
    assert started[0][2] == ["set-threshold", str(folder / "leaves/model.onnx"), "0.835"]


def test_a_run_leads_to_the_files_with_its_weights(page: Page, folder: Path) -> None:
    drawn = page("decide", folder, run="leaves")
    assert [b.key for b in drawn.button if b.key and b.key.startswith("decide-")] == ["decide-leaves/model.onnx"]
    other = page("decide", folder, run="fedlas")
    assert "export the run" in words(other)
