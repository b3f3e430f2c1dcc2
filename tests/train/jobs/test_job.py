"""Keys and results."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant.train.jobs.job import changed, read_result, result_file


def test_a_key_is_made_of_what_differs_from_the_defaults() -> None:
    assert changed({"a": 1, "t": {"x": 2, "y": 3}}, {"a": 1, "t": {"x": 2, "y": 0}, "later": 5}) == {"t": {"y": 3}}


def test_a_table_of_free_options_counts_as_a_whole() -> None:
    assert changed({"options": {"lam": 0.5}}, {"options": {}}) == {"options": {"lam": 0.5}}


def test_a_result_that_was_cut_short_is_told_and_counts_as_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_result(tmp_path, "k") is None
    result_file(tmp_path, "k").parent.mkdir()
    result_file(tmp_path, "k").write_text('{"a": ')
    assert read_result(tmp_path, "k") is None
    assert "is damaged" in caplog.text
