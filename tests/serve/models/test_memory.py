"""Which models go when memory is short."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from calibrant.serve.models.memory import file_bytes, to_put_away


def model(name: str, size: int, used: float, active: int = 0) -> Any:
    return SimpleNamespace(name=name, size=size, used=used, active=active)


MODELS = [model("new", 30, 9.0), model("old", 30, 1.0), model("middle", 30, 5.0), model("busy", 30, 0.0, active=1)]


def gone(coming: int, budget: int) -> list[str]:
    return [m.name for m in to_put_away(MODELS, coming, budget)]


def test_nothing_goes_while_there_is_room() -> None:
    assert gone(30, 150) == []


def test_what_was_asked_longest_ago_goes_first_and_no_more_than_must() -> None:
    assert gone(31, 150) == ["old"]
    assert gone(61, 150) == ["old", "middle"]


def test_what_answers_somebody_goes_last() -> None:
    assert gone(150, 150) == ["old", "middle", "new", "busy"]


def test_a_file_counts_with_its_bytes_and_one_that_is_gone_with_none(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"1234")
    assert file_bytes(tmp_path / "a.onnx") == 4
    assert file_bytes(tmp_path / "none.onnx") == 0
