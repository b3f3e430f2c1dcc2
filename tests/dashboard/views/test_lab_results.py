"""Heads that were trained: which stand in the list, and under which name one is kept."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("streamlit", reason="streamlit is not installed: pip install '.[dashboard]'")

from streamlit.testing.v1 import AppTest

from calibrant.dashboard import jobs
from calibrant.dashboard.settings import Settings
from calibrant.dashboard.views.lab_results import free_name, mine

PAGE = """
from calibrant.dashboard.views import lab_results

lab_results.render("features")
"""
SCORES = {"macro_f1": 0.5, "balanced_accuracy": 0.5, "accuracy": 0.6, "ece": 0.1, "nll": 1.0}


def ended(root: Path, id_: str, **about: Any) -> None:
    """A job that trained a head and ended."""
    folder = root / jobs.FOLDER
    folder.mkdir(exist_ok=True)
    arguments = ("head", "features", "--json", "--set", "head.kind=cosine")
    block = {
        "id": id_, "label": f"job {id_}", "command": jobs.command_line(arguments), "pid": os.getpid(), "born": "once",
        "started": 1e9, "done_when": "", "about": {"kind": "head", "features": "features", "kept": None, **about},
    }  # fmt: skip
    (folder / f"{id_}.json").write_text(json.dumps(block))
    (folder / f"{id_}.log").write_text("")
    (folder / f"{id_}.out").write_text(json.dumps({"val": SCORES, "test": SCORES, "total_strength": 0.0}))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "argv", ["app.py", *Settings(tmp_path).to_arguments()])
    return tmp_path


def test_a_name_is_free_where_no_folder_has_it(tmp_path: Path) -> None:
    assert free_name(tmp_path) == "lab/head-001"
    (tmp_path / "lab" / "head-001").mkdir(parents=True)
    assert free_name(tmp_path) == "lab/head-002"


def test_a_head_can_be_kept_afterwards_by_the_same_command(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(root, "a")
    started: list[Any] = []
    monkeypatch.setattr(jobs, "start", lambda *a, **k: started.append((a, k)))
    page = AppTest.from_string(PAGE).run()
    assert [e.value for e in page.exception] == []
    page.button(key="keep-head").click().run()
    (_, label, arguments), more = started[0]
    assert label == "job a"
    assert arguments == ["head", "features", "--json", "--set", "head.kind=cosine", "--out", "lab/head-001"]
    assert (more["about"]["kept"], more["about"]["replaces"]) == ("lab/head-001", "a")


def test_the_kept_head_stands_in_the_place_of_the_first(root: Path) -> None:
    ended(root, "a")
    ended(root, "b", kept="lab/head-001", replaces="a")
    page = AppTest.from_string(PAGE).run()
    assert [e.value for e in page.exception] == []
    assert page.dataframe[0].value["Kept as"].tolist() == ["lab/head-001"]
    assert [s.job.id for s in mine(root, "features")] == ["b"]
    assert "keep-head" not in {b.key for b in page.button}
