"""Progress without a terminal: a line now and then, more of them or none where the environment says so."""

from __future__ import annotations

import pytest

from calibrant import progress


@pytest.fixture
def _lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALIBRANT_PROGRESS", "lines")
    monkeypatch.setattr(progress._Lines, "seconds", 0.0)


@pytest.mark.usefixtures("_lines")
def test_each_step_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress.progress("abc", what="reading", total=3, unit="files")) == ["a", "b", "c"]
    assert capsys.readouterr().err.splitlines() == [f"reading: {n} of 3 files" for n in (1, 2, 3)]


@pytest.mark.usefixtures("_lines")
def test_a_bar_moved_by_hand_counts_in_thousands_and_needs_no_total(capsys: pytest.CaptureFixture[str]) -> None:
    shown = progress.bar(what="rows", unit="rows")
    shown.update(1500)
    shown.close()
    assert capsys.readouterr().err == "rows: 1,500 rows\n"


def test_lines_are_a_moment_apart(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CALIBRANT_PROGRESS", "lines")
    monkeypatch.setattr(progress._Lines, "seconds", 1e9)
    assert list(progress.progress([1, 2], what="x")) == [1, 2]
    assert capsys.readouterr().err == ""


def test_a_log_has_a_line_now_and_then_and_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CALIBRANT_PROGRESS", raising=False)
    clock = iter(range(100))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))  # two looks where a line is said
    with progress.bar(what="decoding", total=60, unit="img") as bar:
        for _ in range(60):
            bar.update()
    assert capsys.readouterr().err.splitlines() == [f"decoding: {n} of 60 img" for n in (10, 25, 48)]


def test_silence_can_be_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CALIBRANT_PROGRESS", "off")
    monkeypatch.setattr(progress._Lines, "first", 0.0)
    assert list(progress.progress([1, 2], what="x", total=2)) == [1, 2]
    bar = progress.bar(what="x", total=2)
    bar.update(2)
    bar.close()
    assert capsys.readouterr().err == ""


def test_times_are_spoken_in_the_unit_that_people_use() -> None:
    assert [progress.spoken(s) for s in (0.2, 60, 600, 7200)] == ["1 s", "60 s", "10 min", "2.0 h"]
