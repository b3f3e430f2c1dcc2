"""The fine-tuned run takes the head's place, wherever the exchange is broken off."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from calibrant.commands.fit import tuning
from calibrant.commands.fit.heads import Pace
from calibrant.commands.fit.plan import Clock, Wanted
from calibrant.commands.fit.project import Project

FILES = ("config.json", "model.safetensors", "metrics.jsonl", "predictions/x.parquet")


def make(path: Path) -> Project:
    project = Project.open(path, {}, overwrite=False)
    for folder, extra in ((path, ("head.json", "calibrator.json")), (path / tuning.TUNED, ("checkpoint.safetensors",))):
        for name in (*FILES, *extra):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("tuned" if folder != path else "head")
    return project


def check(path: Path) -> None:
    for name in FILES:
        assert (path / name).read_text() == "tuned"
        assert (path / tuning.FROZEN / name).read_text() == "head"
    assert (path / tuning.FROZEN / "calibrator.json").is_file()
    assert not (path / "head.json").exists()
    assert not (path / tuning.TUNED).exists()


@pytest.mark.parametrize("moves", range(1, 11))
def test_an_exchange_that_was_broken_off_is_gone_on_with(
    moves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, left, replace = make(tmp_path / "p"), [moves], Path.replace

    def tired(self: Path, target: Path) -> Path:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return replace(self, target)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "replace", tired)
        try:
            tuning.put_in_place(project)
        except KeyboardInterrupt:
            pass
        else:
            assert moves >= 10
    tuning.put_in_place(project)
    check(tmp_path / "p")
    tuning.put_in_place(project)
    check(tmp_path / "p")


@pytest.mark.parametrize("pretrained", [True, False])
def test_too_few_rows_to_tell_leave_the_backbone_as_it_is(tmp_path: Path, pretrained: bool) -> None:
    """Six pictures, one or two of which judge, have no standard error; it crashed at the end of training."""
    choice: Any = SimpleNamespace(pretrained=pretrained)

    def plan(folds: list[int], *, doubtful: int = 0) -> dict[str, Any]:
        judged = np.arange(len(folds)) >= doubtful
        rows: Any = SimpleNamespace(folds=np.asarray(folds), judged=judged, parts=len(set(folds)))
        project = Project.open(tmp_path / f"{len(folds)} {doubtful}", {}, overwrite=False)
        wanted = Wanted(images=tmp_path)
        return tuning.planned(wanted, project, choice, rows, Pace(64, 0.001), Clock(None, "balanced"))

    assert plan([0, 1, 2, 3, 4, 5])["epochs"] == 0
    assert plan([0] * 2 + [1, 2] * 4)["why"] == "left out: 2 images could not tell whether it wins"
    assert plan([0] * 8 + [1, 2, 3] * 4, doubtful=1)["why"].startswith("left out: 7 images")
    assert plan([0] * 8 + [1, 2, 3] * 4)["epochs"] > 0
