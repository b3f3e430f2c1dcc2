"""A curve is measured once for a file on a device; a store that cannot be read or written is none."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from calibrant.serve.engine import curve_store
from calibrant.serve.engine.batch_curve import BatchCurve, BatchPoint
from calibrant.serve.engine.session import Session
from calibrant.serve.models.model import Model

CURVE = BatchCurve((BatchPoint(1, 0.15), BatchPoint(8, 0.2)), False)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "calibrant" / "batch-curves"


def test_what_was_kept_is_read_back_for_a_week(monkeypatch: pytest.MonkeyPatch) -> None:
    curve_store.write("a", CURVE)
    curve_store.write("b", BatchCurve())
    assert curve_store.read("a") == CURVE
    assert curve_store.read("c") is None
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 8 * 86400)
    assert curve_store.read("a") is None


def test_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve_store, "MOST", 2)
    for key in "abac":
        curve_store.write(key, CURVE)
    assert [curve_store.read(key) is None for key in "abc"] == [False, True, False]


@pytest.mark.parametrize("content", ["", "[1]", '{"key": "a"}', '{"key": "a", "time": "x"}', "\xff"])
def test_a_damaged_curve_is_none(store: Path, content: str) -> None:
    curve_store.write("a", CURVE)
    (file,) = store.iterdir()
    file.write_text(content, encoding="latin-1")
    assert curve_store.read("a") is None
    curve_store.write("a", CURVE)
    assert curve_store.read("a") == CURVE


def test_a_curve_of_another_key_is_not_taken(store: Path) -> None:
    curve_store.write("a", CURVE)
    (file,) = store.iterdir()
    curve_store.write("b", BatchCurve())
    (other,) = (f for f in store.iterdir() if f != file)
    file.replace(other)
    assert curve_store.read("b") is None


def test_no_place_to_write_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    curve_store.write("a", CURVE)
    assert curve_store.read("a") is None


def test_a_second_start_does_not_measure_and_says_so(
    tmp_path: Path, tiny: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tiny.write(tmp_path / "birds.onnx")
    with caplog.at_level(logging.INFO):
        first = Model.load(path, threads=1)
        assert "measured at an earlier start" not in caplog.text
        runs: list[int] = []
        run = Session._best_time

        def noted(self: Session, one: Any, rows: int, *, deadline: float) -> float:
            runs.append(rows)
            return run(self, one, rows, deadline=deadline)

        monkeypatch.setattr(Session, "_best_time", noted)
        second = Model.load(path, threads=1)
    for model in (first, second):
        model.batcher.close()
    assert runs == [1]
    assert second.session.curve == first.session.curve
    assert second.batcher.cap == first.batcher.cap
    assert "measured at an earlier start" in caplog.text


def test_another_number_of_threads_is_another_curve(model_file: Path) -> None:
    one, two = (curve_store.key_of(Session(model_file, threads=n), "sha") for n in (1, 2))
    assert one != two
    assert one != curve_store.key_of(Session(model_file, threads=1), "other")


def test_gpus_are_known_by_what_their_driver_says(tmp_path: Path) -> None:
    for number, name in enumerate(("NVIDIA L4", "NVIDIA H100 PCIe")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "information").write_text(f"Model: \t\t {name}\nIRQ:   \t\t 17\n")
    assert curve_store.gpus(tmp_path) == "NVIDIA L4, NVIDIA H100 PCIe"
    assert curve_store.gpus(tmp_path / "none") == ""
