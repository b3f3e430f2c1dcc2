"""Pages without a browser: Streamlit's own test of an app, in front of a small folder of runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ..conftest import CLASSES, write_feedback, write_model, write_run, write_tokens

pytest.importorskip("streamlit", reason="streamlit is not installed: pip install '.[dashboard]'")

from streamlit.testing.v1 import AppTest

from calibrant.dashboard.settings import Settings

PAGE = """
from calibrant.dashboard import settings
from calibrant.dashboard.folder.index import scan
from calibrant.dashboard.pages import PAGES

PAGES["{view}"][1](scan(settings.current().root))
"""
Page = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, one with pictures, token pictures, a deployed file and what it served."""
    root = tmp_path_factory.mktemp("views") / "runs"
    images = root / "leaves" / "images" / "test"
    ids = []
    for k in range(20):
        path = images / f"{k % CLASSES}" / f"{k:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (24, 16), (12 * k, 120, 255 - 12 * k)).save(path)
        ids.append(path.relative_to(images).as_posix())
    write_run(root / "leaves", rows=400, seed=1, ids=[ids[i % 20] for i in range(400)])
    model = write_model(root / "leaves" / "model.onnx", source={"checkpoint_sha256": "weights of leaves"})
    write_feedback(root / "leaves" / "feedback", model, rows=400, every=2)
    write_run(root / "fedlas", rows=300, seed=2, sharpness=1.4, loss="fedlas-ls", calibrator=False)
    write_tokens(root / "leaves", tuple(f"leaf-{k:02d}" for k in range(CLASSES)))
    return root


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    """page("overview", folder, run="leaves") draws a view with an address and gives what stands on it."""

    def draw(view: str, root: Path, **address: str) -> AppTest:
        monkeypatch.setattr(sys, "argv", ["app.py", *Settings(root).to_arguments()])
        drawn = AppTest.from_string(PAGE.format(view=view), default_timeout=120)
        for key, value in address.items():
            drawn.query_params[key] = value
        drawn.run()
        assert [e.value for e in drawn.exception] == []
        return drawn

    return draw


def words(drawn: Any) -> str:
    """All text of a page."""
    return "\n".join(m.value for m in drawn.markdown)


def frame(drawn: Any, column: str) -> Any:
    """The table that has this column."""
    return next(d.value for d in drawn.dataframe if column in d.value)


def metric(drawn: Any, label: str) -> str:
    return str(next(m.value for m in drawn.metric if m.label == label))
