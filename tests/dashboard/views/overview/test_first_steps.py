"""What an empty folder offers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calibrant.dashboard import jobs

from ..conftest import Page


def test_the_demo_is_made_below_the_folder_at_one_click(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(jobs, "start", lambda *a, **k: started.append((a, k)))
    page("overview", tmp_path).button(key="make-demo").click().run()
    (_, _, arguments), more = started[0]
    assert arguments == ["demo", "--out", str(tmp_path / "calibrant-demo")]
    assert more["done_when"] == tmp_path / "calibrant-demo" / "report.html"


def test_the_first_command_is_for_this_folder(page: Page, tmp_path: Path) -> None:
    assert "calibrant train --data images --out first" in [c.value for c in page("overview", tmp_path).code]
