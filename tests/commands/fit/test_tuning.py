"""The fine-tuned run takes the head's place, wherever the exchange is broken off."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from calibrant.commands.fit import tuning
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
