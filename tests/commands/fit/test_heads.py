"""A pace that was measured once is kept for later sittings."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from calibrant.commands.fit.heads import Pace, pace
from calibrant.commands.fit.plan import Clock, Wanted
from calibrant.commands.fit.project import Project
from calibrant.train.model.choice import ChosenBackbone


def test_the_pace_is_measured_once(tmp_path: Path) -> None:
    project = Project.open(tmp_path / "p", {}, overwrite=False)
    wanted, none = Wanted(tmp_path, image_size=32, device="cpu"), ChosenBackbone("test_resnet", "none")
    first = pace(wanted, none, 10, Clock(None, "fast"), project)
    assert first.size == 32
    assert pace(wanted, ChosenBackbone("no such model", "none"), 10, Clock(None, "fast"), project) == first
    assert isinstance(first, Pace)
