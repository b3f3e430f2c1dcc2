"""The laboratory's switches become the command line that it shows."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from .conftest import Page, words

V1 = Path(__file__).resolve().parents[2] / "golden" / "v1"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    shutil.copytree(V1 / "features", tmp_path / "features")
    return tmp_path


def test_it_says_what_the_features_are_of(page: Page, cache: Path) -> None:
    text = words(page("laboratory", cache)).replace("\\", "")
    assert "Frozen backbone **test_vit**, 8 features, 3 classes, 42 train, 30 val, 12 test images." in text


def test_switches_that_are_off_are_not_in_the_command(page: Page, cache: Path) -> None:
    assert page("laboratory", cache).code[0].value == "calibrant head features --json"


def test_a_switch_that_is_moved_is_in_the_command_and_off_again_it_is_not(page: Page, cache: Path) -> None:
    drawn = page("laboratory", cache)
    drawn.selectbox(key="switch-loss.name").set_value("balanced-softmax").run()
    assert [e.value for e in drawn.exception] == []
    assert shlex.split(drawn.code[0].value)[4:] == ["--set", 'loss.name="balanced-softmax"']
    drawn.button(key="all-off").click().run()
    assert drawn.code[0].value == "calibrant head features --json"


def test_without_features_it_says_how_to_make_them(page: Page, tmp_path: Path) -> None:
    assert page("laboratory", tmp_path).code[0].value.startswith("calibrant features ")
