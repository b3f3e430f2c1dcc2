"""Finished parts wait beside the output; what was done for another question is thrown away."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import Source, read_predictions
from calibrant.serve.batch.order import Bad, Rows
from calibrant.serve.batch.parts_folder import PartsFolder

SOURCE = Source(("auk", "crane"))


def folder(out: Path, key: str = "same") -> PartsFolder:
    return PartsFolder.beside(out, SOURCE, split="test", total=5, part=2, key=key)


def rows(*numbers: int) -> Rows:
    logits = np.array([[n, -n] for n in numbers], np.float32)
    return Rows([f"{n}.png" for n in numbers], np.zeros(len(numbers), np.int64), logits, None, None)


def fill(parts: PartsFolder, span: tuple[int, int], bad: list[Bad] | None = None) -> None:
    with parts.writing(span, bad or []) as append:
        for n in range(*span):
            append(rows(n))


def test_spans_cover_all_and_the_last_one_is_shorter(tmp_path: Path) -> None:
    assert folder(tmp_path / "p.parquet").left == [(0, 2), (2, 4), (4, 5)]


def test_what_is_done_is_not_left_and_goes_on_with_the_same_key(tmp_path: Path) -> None:
    fill(folder(tmp_path / "p.parquet"), (2, 4))
    assert folder(tmp_path / "p.parquet").left == [(0, 2), (4, 5)]
    assert folder(tmp_path / "p.parquet", "another model").left == [(0, 2), (2, 4), (4, 5)]


def test_a_part_that_was_broken_off_is_left(tmp_path: Path) -> None:
    parts = folder(tmp_path / "p.parquet")

    def broken_off() -> None:
        with parts.writing((0, 2), []) as append:
            append(rows(0))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert (0, 2) in folder(tmp_path / "p.parquet").left


def test_joined_they_stand_in_order_and_the_folder_goes(tmp_path: Path) -> None:
    out = tmp_path / "p.parquet"
    parts = folder(out)
    for span in ((4, 5), (0, 2), (2, 4)):  # as several processes may end
        fill(parts, span, [Bad(f"bad{span[0]}.png", "cut")])
    assert [b.id for b in parts.bad()] == ["bad0.png", "bad2.png", "bad4.png"]
    parts.join(out, features=False)
    assert read_predictions(out).ids == ("0.png", "1.png", "2.png", "3.png", "4.png")
    assert read_predictions(out).logits[3].tolist() == [3, -3]
    assert [p.name for p in tmp_path.iterdir()] == ["p.parquet"]
